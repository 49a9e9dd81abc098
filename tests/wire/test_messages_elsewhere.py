"""Our bytes against those of kafka-python and kio: they read what we write, and write the same again."""

import dataclasses
import importlib
import io
import pkgutil
import typing
import warnings

import kio.index
import kio.serial
import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from odradek.wire.codec import decode_message, encode_message
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.schema import INT32, UUID, ZERO_UUID, Array, Primitive, fields_of
from tests.wire.message_samples import Samples, api_messages, plain

with warnings.catch_warnings():
    # kafka-python loads its schemas with a deprecated call.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

SAMPLES_EACH = 2


def kafka_python_classes():
    found = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" in module.name or "generate" in module.name:
            continue
        for name, cls in vars(importlib.import_module(module.name)).items():
            if isinstance(cls, type) and issubclass(cls, ApiMessage) and getattr(cls, "_json", None):
                found[name] = cls
    return found


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    KAFKA_PYTHON = kafka_python_classes()
IN_KAFKA_PYTHON = [
    (cls, version)
    for cls, version in api_messages()
    if cls.__name__ in KAFKA_PYTHON and version <= KAFKA_PYTHON[cls.__name__].max_version
]


def by_class(pairs):
    """One test for a class with all of its versions: a test for each would cost more than what it does."""
    versions = {}
    for cls, version in pairs:
        versions.setdefault(cls, []).append(version)
    return [pytest.param(cls, found, id=cls.__name__) for cls, found in versions.items()]


def same_values(ours, theirs, version, path):
    """Compare by field name, so that two neighbours of one type cannot be swapped unseen."""
    for spec in fields_of(type(ours)):
        if not spec.exists_in(version):
            continue
        if spec.name.endswith("authorized_operations"):
            # kafka-python renames some of these and makes them sets; the bytes are compared all the same.
            continue
        mine, other = getattr(ours, spec.name), getattr(theirs, spec.name)
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


@pytest.mark.parametrize(("cls", "versions"), by_class(IN_KAFKA_PYTHON))
def test_kafka_python_reads_and_writes_the_same_bytes(cls, versions):
    for version in versions:
        check_with_kafka_python(cls, version)


def check_with_kafka_python(cls, version):
    samples = Samples((cls.__name__, version))
    theirs = KAFKA_PYTHON[cls.__name__][version]
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
    versions = schema_name_map.get(api_key_map.get(cls.api_key), {})
    direction = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    if version not in versions:
        return None
    return getattr(kio.index.load_entity_module(api_key_map[cls.api_key], version, direction), cls.__name__)


IN_KIO = [(cls, version) for cls, version in api_messages() if kio_class(cls, version) is not None]


def same_names(ours, theirs, version, path):
    # kio turns a number of milliseconds into a time and drops the unit from the name; its `id` is `id_`.
    mine = {spec.name.removesuffix("_ms") for spec in fields_of(ours) if spec.exists_in(version)}
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


@pytest.mark.parametrize(("cls", "versions"), by_class(IN_KIO))
def test_kio_reads_and_writes_the_same_bytes(cls, versions):
    for version in versions:
        check_with_kio(cls, version, kio_class(cls, version))


@pytest.mark.parametrize("name", ["subscription", "assignment"])
def test_kio_agrees_about_what_consumers_put_inside_of_group_requests(name):
    cls = getattr(consumer_protocol, f"ConsumerProtocol{name.capitalize()}")
    for version in cls.versions:
        module = importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
        check_with_kio(cls, version, getattr(module, cls.__name__))


def check_with_kio(cls, version, theirs):
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


def test_the_other_libraries_know_most_of_what_we_declare():
    assert len(IN_KAFKA_PYTHON) > 400
    assert len(IN_KIO) > 450
