"""Our bytes against those of kafka-python and kio: they read what we write, and write the same again."""

import dataclasses
import functools
import importlib
import io
import pkgutil
import typing
import warnings

import pytest

from odradek.wire.codec import decode_message, encode_message
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.wire.schema import INT32, UUID, ZERO_UUID, Array, Primitive, fields_of
from tests.kit.collecting import collected
from tests.tiers import NIGHTLY
from tests.wire.message_samples import Samples, api_messages, plain

RENAMED = {
    (TxnOffsetCommitRequest, "generation_id_or_member_epoch"): "generation_id",
    (StreamsGroupHeartbeatResponse, "acceptable_recovery_lag_legacy"): "acceptable_recovery_lag",
}
"""Fields that have another name since Kafka 4.4, and their old one."""
SAMPLES_EACH = 20 if NIGHTLY else 1


@functools.cache
def kafka_python_classes():
    """Name -> class of kafka-python, which makes them out of schemas when it is imported."""
    with warnings.catch_warnings():
        # It loads its schemas with a deprecated call.
        warnings.simplefilter("ignore", DeprecationWarning)
        return dict(_kafka_python_classes())


def _kafka_python_classes():
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" in module.name or "generate" in module.name:
            continue
        for name, cls in vars(importlib.import_module(module.name)).items():
            if isinstance(cls, type) and issubclass(cls, ApiMessage) and getattr(cls, "_json", None):
                yield name, cls


def same_values(ours, theirs, version, path):
    """Compare by field name, so that two neighbours of one type cannot be swapped unseen."""
    for spec in fields_of(type(ours)):
        if not spec.exists_in(version):
            continue
        if spec.name.endswith("authorized_operations"):
            # kafka-python renames some of these and makes them sets; the bytes are compared all the same.
            continue
        mine = getattr(ours, spec.name)
        other = getattr(theirs, RENAMED.get((type(ours), spec.name), spec.name))
        same_value(mine, other, spec.type, version, f"{path}.{spec.name}")


def same_value(mine, other, wire_type, version, path):
    if wire_type is UUID:
        # kafka-python has UUID objects, and None for the zero id of an absent tag.
        assert mine == (ZERO_UUID if other is None else other.bytes), path
    elif mine is None or other is None:
        is_absent_struct = not isinstance(wire_type, Array | Primitive)
        assert is_absent_struct or (mine is None and other is None), path
    elif isinstance(wire_type, Array):
        assert len(mine) == len(other), path
        for one, two in zip(mine, other, strict=True):
            same_value(one, two, wire_type.item, version, path)
    elif not isinstance(wire_type, Primitive):
        same_values(mine, other, version, path)
    else:
        assert plain(mine) == plain(other), path


@pytest.mark.deep
def test_kafka_python_reads_and_writes_the_same_bytes():
    known, tried = kafka_python_classes(), 0
    with collected() as failures:
        for cls, version in api_messages():
            if cls.__name__ in known and version <= known[cls.__name__].max_version:
                tried += 1
                with failures.of(f"{cls.__name__} version {version}"):
                    check_with_kafka_python(cls, version, known[cls.__name__][version])
    assert tried > 400, "it knows most of what we declare"


def check_with_kafka_python(cls, version, theirs):
    samples = Samples((cls.__name__, version))
    for _ in range(SAMPLES_EACH):
        message = settled(samples.message(cls, version), version)
        data = encode_message(message, version)
        read = theirs.decode(data, header=False)
        same_values(message, read, version, f"v{version}")
        if not hasattr(read, "_header"):
            read._header = None
        assert bytes(read.encode(header=False)) == data


def settled(message, version):
    """Without the values that kafka-python reads in a way of its own."""
    for spec in fields_of(type(message)):
        value = getattr(message, spec.name)
        if spec.type is INT32 and spec.name.endswith("authorized_operations") and spec.exists_in(version):
            setattr(message, spec.name, 0b1100)
        elif isinstance(value, list):
            for item in value:
                if hasattr(item, "__dataclass_fields__"):
                    settled(item, version)
    if isinstance(message, ApiVersionsResponse):
        # After an error kafka-python expects a body of version 0.
        message.error_code = 0
    return message


def kio_class(cls, version):
    import kio.index
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

    versions = schema_name_map.get(api_key_map.get(cls.api_key), {})
    direction = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    if version not in versions:
        return None
    return getattr(kio.index.load_entity_module(api_key_map[cls.api_key], version, direction), cls.__name__)


def same_names(ours, theirs, version, path):
    # kio turns a number of milliseconds into a time and drops the unit from the name; its `id` is `id_`.
    fields = [spec for spec in fields_of(ours) if spec.exists_in(version)]
    mine = {RENAMED.get((ours, spec.name), spec.name).removesuffix("_ms") for spec in fields}
    names = {field.name.removesuffix("_ms").removesuffix("_") for field in dataclasses.fields(theirs)}
    assert mine == names, path
    hints = typing.get_type_hints(theirs)
    for spec in fields_of(ours):
        inner = spec.type.item if isinstance(spec.type, Array) else spec.type
        if spec.exists_in(version) and isinstance(inner, type):
            nested = [hints[spec.name]]
            while not dataclasses.is_dataclass(nested[-1]):
                nested += [one for one in typing.get_args(nested.pop()) if one not in (type(None), Ellipsis)]
            same_names(inner, nested[-1], version, f"{path}.{spec.name}")


@pytest.mark.deep
def test_kio_reads_and_writes_the_same_bytes():
    tried = 0
    with collected() as failures:
        for cls, version in api_messages():
            theirs = kio_class(cls, version)
            if theirs is not None:
                tried += 1
                with failures.of(f"{cls.__name__} version {version}"):
                    check_with_kio(cls, version, theirs)
    assert tried > 450, "it knows most of what we declare"


@pytest.mark.parametrize("name", ["subscription", "assignment"])
def test_kio_agrees_about_what_consumers_put_inside_of_group_requests(name):
    cls = getattr(consumer_protocol, f"ConsumerProtocol{name.capitalize()}")
    for version in cls.versions:
        module = importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
        check_with_kio(cls, version, getattr(module, cls.__name__))


def check_with_kio(cls, version, theirs):
    import kio.serial

    samples = Samples((cls.__name__, version), tame=True)
    same_names(cls, theirs, version, f"v{version}")
    read, write = kio.serial.entity_reader(theirs), kio.serial.entity_writer(theirs)
    for _ in range(SAMPLES_EACH):
        message = samples.message(cls, version)
        data = encode_message(message, version)
        entity, size = read(data, 0)
        assert size == len(data)
        written = io.BytesIO()
        write(written, entity)
        assert written.getvalue() == data
        assert decode_message(cls, version, written.getvalue()) == decode_message(cls, version, data)
