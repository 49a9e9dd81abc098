"""The settings of a topic or broker after IncrementalAlterConfigs.

The texts are changed, not checked: `config/options.py` checks the result. Source:
ConfigurationControlManager.java of Kafka 4.3.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.config.option import LIST, Option
from odradek.wire.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)
_NAMES = {APPEND: "append to", SUBTRACT: "subtract from"}


class ConfigOperation(NamedTuple):
    """One setting of a request, by the protocol's numbers (`AlterConfigOp.OpType`)."""

    name: str
    kind: int
    value: str | None
    """None only for DELETE."""


def changed(
    configs: Mapping[str, str], operations: Iterable[ConfigOperation], options: Mapping[str, Option]
) -> dict[str, str]:
    """The settings after all operations.

    APPEND and SUBTRACT change the list in `configs`, else Kafka's default, not the broker's default for its
    topics. Refuses them with INVALID_CONFIG for an option that is no list.
    """
    result = dict(configs)
    for name, kind, value in operations:
        if kind == DELETE:
            result.pop(name, None)
            continue
        assert value is not None, name
        if kind != SET:
            value = _changed_list(options.get(name), name, kind, result.get(name), value)
        result[name] = value
    return result


def _changed_list(option: Option | None, name: str, kind: int, current: str | None, value: str) -> str:
    if option is None or option.kind != LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {_NAMES[kind]} {name}: it is not a list.")
    if current is None:
        current = option.default or ""
    items = [item for item in current.split(",") if item]
    for item in value.split(","):
        if kind == SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)
