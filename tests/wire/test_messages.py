"""Every message comes back from the wire as it went, in every version; and `find` knows them all."""

import inspect
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.wire import messages
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.messages import consumer_protocol, group_records, transaction_records
from odradek.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    Message,
    Primitive,
    fields_of,
)
from tests.kit.collecting import collected
from tests.tiers import NIGHTLY
from tests.wire.message_samples import INTEGER_BITS, Samples, all_classes, all_messages, plain

ROUNDS = 20 if NIGHTLY else 2
EXAMPLES = 100 if NIGHTLY else 6
CLASS_STEP = 1 if NIGHTLY else 25
"""By day hypothesis tries each 25th class."""

TEXT = st.text(st.characters(codec="utf-8"), max_size=140)
PRIMITIVES = {
    STRING: TEXT,
    BYTES: st.binary(max_size=140),
    RECORDS: st.binary(max_size=140),
    UUID: st.binary(min_size=16, max_size=16),
    BOOL: st.booleans(),
    FLOAT64: st.floats(allow_nan=False),
}


def integers(wire_type):
    bits = INTEGER_BITS[wire_type.name]
    return st.integers(0 if wire_type.name.startswith("u") else -(1 << bits), (1 << bits) - 1)


def values(wire_type, version):
    if isinstance(wire_type, Array):
        return st.lists(values(wire_type.item, version), max_size=3)
    if isinstance(wire_type, Primitive):
        return PRIMITIVES[wire_type] if wire_type in PRIMITIVES else integers(wire_type)
    return structs(wire_type, version)


def structs(cls, version):
    present = {}
    for spec in fields_of(cls):
        if not spec.exists_in(version):
            continue
        value = values(spec.type, version)
        if spec.null_allowed_in(version):
            value = st.none() | value
        elif spec.tag is not None and not isinstance(spec.type, Array | Primitive):
            # A tagged struct that equals its default is left out, and comes back as None.
            value = st.none() | value.filter(lambda one, cls=spec.type: one != cls())
        present[spec.name] = value
    return st.builds(cls, **present)


def check_that_it_comes_back(message, version):
    encoded = encode_message(message, version)
    decoded = decode_message(type(message), version, encoded)
    assert plain(decoded) == plain(message)
    assert encode_message(decoded, version) == encoded


def test_a_message_comes_back_as_it_went():
    with collected() as failures:
        for cls, version in all_messages():
            samples = Samples((cls.__name__, version, "back"))
            with failures.of(f"{cls.__name__} version {version}"):
                for _ in range(ROUNDS):
                    check_that_it_comes_back(samples.message(cls, version), version)


def test_a_message_of_any_values_comes_back_as_it_went():
    """By hypothesis, which also looks for the smallest message that does not."""
    with collected() as failures:
        for cls in all_classes()[::CLASS_STEP]:
            with failures.of(cls.__name__):
                check_any_values(cls)


def check_any_values(cls):
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def comes_back(data):
        version = data.draw(st.sampled_from(cls.versions))
        check_that_it_comes_back(data.draw(structs(cls, version)), version)

    comes_back()


def not_null(spec, version):
    if spec.tag is not None or spec.null_allowed_in(version):
        return None
    return {STRING: "", RECORDS: b""}.get(spec.type, [])


def test_defaults_come_back_as_defaults():
    with collected() as failures:
        for cls, version in all_messages():
            message = cls()
            for spec in fields_of(cls):
                if spec.exists_in(version) and getattr(message, spec.name) is None:
                    setattr(message, spec.name, not_null(spec, version))
            with failures.of(f"{cls.__name__} version {version}"):
                decoded = decode_message(cls, version, encode_message(message, version))
                assert plain(decoded) == plain(message)


def test_find_gives_request_and_response_of_every_api():
    for api_key in messages.api_keys():
        request, response = messages.find(api_key)
        name = messages.api_name(api_key)
        assert (request.__name__, response.__name__) == (f"{name}Request", f"{name}Response")
        assert request.api_key == response.api_key == api_key
        assert request.versions == response.versions == messages.versions_of(api_key)
        assert request.flexible_since == response.flexible_since == messages.flexible_since(api_key) or (
            request.flexible_since is None
        )
        assert issubclass(request, Message)


def test_an_api_that_is_not_declared_is_a_key_error():
    with pytest.raises(KeyError):
        messages.find(4)
    assert messages.flexible_since(4) is None


def test_a_message_has_one_line_about_every_field():
    for module in {sys.modules[cls.__module__] for cls in all_classes()}:
        source = inspect.getsource(module).splitlines()
        for number, line in enumerate(source):
            if " = on_wire(" in line:
                end = number + 1 if line.endswith(")") else source.index("    )", number) + 1
                assert source[end].startswith('    """'), f"{module.__name__}:{number + 1} needs a doc line"


def test_offset_keys_of_both_types_share_the_value():
    for key_class in (group_records.LegacyOffsetCommitKey, group_records.OffsetCommitKey):
        key = key_class(group="workers", topic="jobs", partition=7)
        assert group_records.decode_key(group_records.encode_key(key)) == key
        value = group_records.OffsetCommitValue(offset=5, metadata="here", commit_timestamp=123)
        for version in group_records.OffsetCommitValue.versions:
            encoded = group_records.encode_value(value, version)
            assert encoded[:2] == version.to_bytes(2, "big")
            assert group_records.decode_value(key, encoded) == value


def test_a_record_key_has_its_type_in_front():
    key = group_records.GroupMetadataKey(group="g")
    assert group_records.encode_key(key) == b"\x00\x02\x00\x01g"
    transaction = transaction_records.TransactionLogKey(transactional_id="t")
    assert transaction_records.encode_key(transaction) == b"\x00\x00\x00\x01t"


def test_an_unknown_record_type_reads_as_none():
    assert group_records.decode_key(b"\x00\x63anything") is None


def test_a_subscription_of_a_newer_version_reads_as_the_newest_known():
    subscription = consumer_protocol.ConsumerProtocolSubscription(topics=["a", "b"], rack_id="r1")
    encoded = consumer_protocol.encode(subscription, 3)
    newer = b"\x00\x09" + encoded[2:] + b"more that was added later"
    assert consumer_protocol.decode_subscription(newer) == subscription


def test_an_assignment_in_bytes():
    assignment = consumer_protocol.ConsumerProtocolAssignment(
        assigned_partitions=[consumer_protocol.AssignedTopicPartitions(topic="t", partitions=[0, 2])]
    )
    encoded = bytes.fromhex("0000 00000001 0001 74 00000002 00000000 00000002 ffffffff")
    assert consumer_protocol.encode(assignment, 0) == encoded
    assert consumer_protocol.decode_assignment(encoded) == assignment
