"""A request of each API that names one topic, partition, group and transactional id, wherever it can."""

from __future__ import annotations

from odradek.server.test_kit.named import GROUP, KEY, TOPIC, meaning_of
from odradek.wire.schema import Array, Message, Primitive, fields_of

TOPIC_RESOURCE = 2
ACL = {
    **dict.fromkeys(("resource_type", "resource_type_filter"), TOPIC_RESOURCE),
    **dict.fromkeys(("pattern_type_filter", "resource_pattern_type", "operation", "permission_type"), 3),
}
"""Literal names, and the operation Read, which is allowed."""


def sample(request: type[Message], version: int, names: dict[str, object], **fields: object) -> Message:
    """Each list has one item; `names` are by kinds, `fields` those at the top that are not as by default."""
    made = _sample(request, request, version, (), {KEY: names[GROUP], **names})
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _sample(request, struct, version, path, names):
    values = {}
    for field in fields_of(struct):
        if not field.exists_in(version):
            continue
        kind = meaning_of(request, path, field)
        if isinstance(field.type, Array):
            item = field.type.item
            if isinstance(item, Primitive):
                values[field.name] = [names[kind]] if kind is not None else []
            else:
                values[field.name] = [_sample(request, item, version, (*path, field.name), names)]
        elif kind is not None:
            values[field.name] = names[kind]
        elif field.name in ACL:
            values[field.name] = ACL[field.name]
        elif field.name == "resource_name":
            values[field.name] = names[TOPIC]
    return struct(**values)
