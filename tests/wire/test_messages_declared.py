"""Every declaration against the field tables in `data/`, which come from Kafka's schemas, not from us."""

import functools
import pathlib
import re
from dataclasses import dataclass, field

from odradek.wire.messages import consumer_protocol
from odradek.wire.schema import Array, Primitive, fields_of
from tests.kit.collecting import collected
from tests.wire.message_samples import all_classes

DATA = pathlib.Path(__file__).parent / "data"
LINE = re.compile(
    r"(?P<indent> *)(?P<name>\w+) (?P<list>\[\])?(?P<type>\w+) (?P<versions>\S+)(?: null (?P<null>\S+))?"
    r"(?: tag (?P<tag>\d+))?(?: default (?P<default>\S+))?(?P<ignorable> ignorable)?$"
)
# One module holds request and response, so of two structs with one name one has a name of ours.
NAMED_BY_US = {
    "AlteredPartition": "PartitionData",
    "AlteredTopic": "TopicData",
    "AssignedDirectory": "DirectoryData",
    "AssignedPartition": "PartitionData",
    "AssignedTaskIds": "TaskIds",
    "AssignedTopic": "TopicData",
    "DeletingTopicInfo": "TopicInfo",
    "EntryDataResult": "EntryData",
    "PartitionQuorumData": "PartitionData",
    "SnapshotPiece": "PartitionSnapshot",
    "TopicQuorumData": "TopicData",
    "TopicSnapshotPieces": "TopicSnapshot",
    "VoterWithEndpoints": "Voter",
}
# Structs of the same fields that are one of ours.
IS_ALSO = {"KeyValue": ("TopicConfig", "LastAssignmentConfig"), "TopicPartition": ("TopicPartitions",)}


@dataclass
class Row:
    name: str
    type: str
    is_list: bool
    versions: str
    null: str | None
    tag: int | None
    default: str | None
    ignorable: bool
    inner: list["Row"] = field(default_factory=list)


@dataclass
class Table:
    versions: str
    flexible: str
    rows: list[Row]


def within(versions, version):
    if versions in (None, "-"):
        return False
    first, _, last = versions.replace("+", "-9999").partition("-")
    return int(first) <= version <= int(last or first)


@functools.cache
def read_tables(kafka):
    """The tables of a release of Kafka: the name of a message -> what it has."""
    tables = {}
    for line in (DATA / f"fields-{kafka}.txt").read_text().splitlines()[1:]:
        if not line.startswith(" "):
            name, versions, _, flexible = line.split()
            levels = [[]]
            tables[name] = Table(versions, flexible, levels[0])
            continue
        found = LINE.match(line)
        assert found, line
        depth = len(found["indent"]) // 2
        tag = None if found["tag"] is None else int(found["tag"])
        row = Row(
            found["name"], found["type"], found["list"] is not None, found["versions"], found["null"], tag,
            found["default"], found["ignorable"] is not None,
        )  # fmt: skip
        del levels[depth:]
        levels[depth - 1].append(row)
        levels.append(row.inner)
    return tables


def classes():
    """All but what clients put inside of JoinGroup and SyncGroup, which is not in the tables."""
    return [cls for cls in all_classes() if cls.__module__ != consumer_protocol.__name__]


def newest(cls):
    return read_tables("4.4")[cls.__name__]


def expected_default(row, spec):
    if row.default is not None:
        text = {"null": None, "true": True, "false": False}
        return text[row.default] if row.default in text else int(row.default)
    if row.is_list:
        return list
    return spec.type.default if isinstance(spec.type, Primitive) else spec.default


def compare(specs, rows, version, path):
    mine = [spec for spec in specs if spec.exists_in(version)]
    theirs = [row for row in rows if within(row.versions, version)]
    assert [spec.name for spec in mine] == [row.name for row in theirs], path
    for spec, row in zip(mine, theirs, strict=True):
        where = f"{path}.{spec.name}"
        assert isinstance(spec.type, Array) == row.is_list, where
        inner = spec.type.item if isinstance(spec.type, Array) else spec.type
        name = inner.name if isinstance(inner, Primitive) else inner.__name__
        assert row.type in (NAMED_BY_US.get(name, name), *IS_ALSO.get(name, ())), where
        assert spec.null_allowed_in(version) == within(row.null, version), where
        assert (spec.tag if spec.is_tagged_in(version) else None) == row.tag, where
        if row.tag is None or isinstance(spec.type, Array | Primitive):
            assert spec.default == expected_default(row, spec), where
        if row.inner:
            compare(fields_of(inner), row.inner, version, where)


def test_a_declaration_says_what_the_field_tables_say():
    with collected() as failures:
        for cls in classes():
            for version in cls.versions:
                with failures.of(f"{cls.__name__} v{version}"):
                    is_new = within(newest(cls).versions, version)
                    table = newest(cls) if is_new else read_tables("3.9")[cls.__name__]
                    assert within(table.versions, version)
                    assert cls.is_flexible(version) == within(table.flexible, version)
                    compare(fields_of(cls), table.rows, version, cls.__name__)


def compare_ignorable(specs, rows, path):
    known = {row.name: row for row in rows}
    for spec in specs:
        row = known.get(spec.name)
        if row is None:
            continue
        assert spec.ignorable == row.ignorable, f"{path}.{spec.name}"
        inner = spec.type.item if isinstance(spec.type, Array) else spec.type
        if row.inner:
            compare_ignorable(fields_of(inner), row.inner, f"{path}.{spec.name}")


def test_what_may_be_left_out_in_old_versions_is_what_kafka_leaves_out():
    with collected() as failures:
        for cls in classes():
            with failures.of(cls.__name__):
                compare_ignorable(fields_of(cls), newest(cls).rows, cls.__name__)


def test_the_newest_version_is_the_newest_of_the_tables():
    with collected() as failures:
        for cls in classes():
            with failures.of(cls.__name__):
                assert within(newest(cls).versions, cls.versions[-1])
