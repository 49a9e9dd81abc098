"""Topics that directories of partitions know, where the metadata have lost some."""

from odradek.server.metadata.topics_on_disk import FoundTopic, topics_on_disk
from odradek.storage.checkpoints import write_partition_metadata
from odradek.storage.disk import OsDisk
from odradek.wire.legacy_records import build_message

ONE, OTHER = bytes(range(16)), bytes(range(1, 17))


def make(directory, name, topic_id):
    (directory / name).mkdir()
    write_partition_metadata(OsDisk(), f"{directory}/{name}/partition.metadata", topic_id)


def found(directory, told, *, ids=None, indexes=None, deleted=()):
    return topics_on_disk(OsDisk(), [str(directory)], ids or {}, indexes or {}, deleted, told.append)


def test_a_topic_has_the_id_and_the_last_partition_of_its_directories(tmp_path):
    for index in (0, 2):
        make(tmp_path, f"t-{index}", ONE)
    assert found(tmp_path, []) == [FoundTopic("t", ONE, 3)]
    known = {"t": ONE}
    assert found(tmp_path, [], ids=known, indexes={"t": [0]}) == [FoundTopic("t", ONE, 3)]
    assert found(tmp_path, [], ids=known, indexes={"t": range(3)}) == []
    assert found(tmp_path, [], deleted=[ONE]) == []
    assert found(tmp_path, [], ids={"t": OTHER}, indexes={"t": [0]}) == []


def test_a_directory_with_messages_of_old_formats_becomes_no_topic(tmp_path):
    """Nobody has converted it, so it was never served; a start would take its messages for damage."""
    make(tmp_path, "old-0", ONE)
    message = build_message(1, offset=5, timestamp=1, key=None, value=b"v")
    (tmp_path / "old-0" / f"{5:020d}.log").write_bytes(message)
    told: list[str] = []
    assert found(tmp_path, told) == []
    advice = "has messages of format v0 or v1 and is left alone: odradek import-log takes it in"
    assert told == [f"{tmp_path}/old-0 {advice}"]
