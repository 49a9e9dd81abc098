"""Whose data a directory holds, and how a node alone claims it."""

import pytest

from odradek import Broker, BrokerStartError
from odradek.config.broker_config import ConfigError
from odradek.config.properties import parse_properties
from odradek.server.metadata.meta_properties import FILE_NAME, METADATA_LOG, claim_directories, is_kafkas
from odradek.server.metadata.metadata_batches import control_batch
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.storage.disk import OsDisk
from odradek.wire.messages.metadata_records import LeaderChangeMessage, Voter


def test_a_directory_is_claimed_once_and_keeps_its_ids(tmp_path):
    directories = [str(tmp_path / "deep" / "one"), str(tmp_path / "two")]
    first = claim_directories(directories, node_id=3)
    assert claim_directories(directories, node_id=3) == first
    assert len(set(first.directory_ids.values())) == 2
    properties = parse_properties((tmp_path / "two" / FILE_NAME).read_bytes())
    assert properties == {
        "cluster.id": first.cluster_id,
        "directory.id": first.directory_ids[directories[1]],
        "node.id": "3",
        "version": "1",
    }
    assert len(first.cluster_id) == 22


def test_a_new_directory_joins_the_cluster_of_the_others(tmp_path):
    first = claim_directories([str(tmp_path / "one")], node_id=1)
    both = claim_directories([str(tmp_path / "new"), str(tmp_path / "one")], node_id=1)
    assert both.cluster_id == first.cluster_id


def test_an_id_never_looks_like_an_option(tmp_path):
    # 0xFB begins with "-" in URL-safe base64.
    chosen = [b"\xfb" * 16, b"\x01" * 16, b"\x02" * 16]
    identity = claim_directories([str(tmp_path)], node_id=1, random_bytes=lambda _: chosen.pop(0))
    assert not identity.cluster_id.startswith("-")
    assert len(chosen) == 0


def test_the_cluster_id_that_was_asked_for_is_taken_or_refused(tmp_path):
    assert claim_directories([str(tmp_path)], node_id=1, cluster_id="mine").cluster_id == "mine"
    with pytest.raises(ConfigError, match="cluster mine, not of yours"):
        claim_directories([str(tmp_path)], node_id=1, cluster_id="yours")


def test_the_directory_of_another_node_is_refused(tmp_path):
    claim_directories([str(tmp_path)], node_id=1)
    with pytest.raises(ConfigError, match=r"set node\.id=1"):
        claim_directories([str(tmp_path)], node_id=2)


def test_directories_of_two_clusters_are_refused(tmp_path):
    for name in ("one", "two"):
        claim_directories([str(tmp_path / name)], node_id=1, cluster_id=name)
    with pytest.raises(ConfigError, match="cluster two, not of one"):
        claim_directories([str(tmp_path / "one"), str(tmp_path / "two")], node_id=1)


KAFKAS = "#\n#Wed Nov 25 17:56:17 UTC 2026\nnode.id=1\ndirectory.id={}\nversion=1\ncluster.id=theirs\n"


def format_as_kafka(directory, *partitions):
    """What kafka-storage format makes of a log directory, and a broker of Kafka afterwards."""
    directory.mkdir()
    (directory / FILE_NAME).write_text(KAFKAS.format(f"id-of-{directory.name}"))
    (directory / "bootstrap.checkpoint").write_bytes(b"")
    for partition in partitions:
        (directory / partition).mkdir()
    return directory


def test_kafkas_other_log_directories_are_refused_untouched(tmp_path):
    """They have no cluster metadata, but partitions, and a file that we did not write."""
    theirs, new = format_as_kafka(tmp_path / "b", "orders-1"), tmp_path / "new"
    before = (theirs / FILE_NAME).read_bytes()
    for directories in ([theirs], [new, theirs], [theirs, new]):
        with pytest.raises(ConfigError, match=r"b of log\.dirs was written by Apache Kafka, .* import-log "):
            claim_directories(map(str, directories), node_id=1)
    assert (theirs / FILE_NAME).read_bytes() == before
    assert not (new / FILE_NAME).exists()


def with_log(directory, *voters):
    """A metadata log of these voters, as Kafka writes it with kraft.version 0."""
    path = directory / METADATA_LOG
    log = DiskMetadataLog(OsDisk(), str(path), ThisVoter(1, bytes(15) + b"\7"), now_ms=lambda: 1000)
    log.close()
    voters = [Voter(voter_id=one) for one in voters]
    change = LeaderChangeMessage(version=0, leader_id=1, voters=voters, granting_voters=[])
    (segment,) = path.glob("*.log")
    segment.write_bytes(control_batch([change], 0, 1, 1000))
    return directory


def test_a_log_of_kafka_is_taken_with_all_its_directories(tmp_path):
    first = with_log(format_as_kafka(tmp_path / "a", "orders-0"), 1)
    second = format_as_kafka(tmp_path / "b", "orders-1")
    identity = claim_directories([str(first), str(second)], node_id=1)
    assert (identity.cluster_id, list(identity.directory_ids.values())) == ("theirs", ["id-of-a", "id-of-b"])
    assert not is_kafkas(str(first))
    elsewhere = with_log(tmp_path / "metadata", 1)
    third = format_as_kafka(tmp_path / "c", "orders-2")
    identity = claim_directories([str(third)], node_id=1, metadata_directory=str(elsewhere))
    assert identity.directory_ids.keys() == {str(third), str(elsewhere)}


@pytest.mark.parametrize("voters", [(1, 2), (2,)])
def test_a_log_of_other_voters_is_refused_untouched(tmp_path, voters):
    directory = with_log(format_as_kafka(tmp_path / "a", "orders-0"), *voters)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(BrokerStartError, match="is the log of several voters, among them 2"):
        Broker(data_dir=directory).start()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_kafkas_other_log_directory_never_joins_ours(tmp_path):
    """Whoever sets CLUSTER_ID has the same one in both."""
    ours = tmp_path / "ours"
    claim_directories([str(ours)], node_id=1, cluster_id="theirs")
    (ours / "odradek-metadata.db").touch()
    theirs = format_as_kafka(tmp_path / "b", "orders-1")
    with pytest.raises(ConfigError, match="written by Apache Kafka"):
        claim_directories([str(ours), str(theirs)], node_id=1)


def test_directories_that_kafkas_tools_formatted_for_us_are_ours_once_they_are_used(tmp_path):
    directories = [format_as_kafka(tmp_path / name) for name in ("a", "b")]
    first = claim_directories(map(str, directories), node_id=1)
    assert (first.cluster_id, list(first.directory_ids.values())) == ("theirs", ["id-of-a", "id-of-b"])
    for directory in directories:
        (directory / "orders-0").mkdir()
    assert claim_directories(map(str, directories), node_id=1) == first


def test_a_directory_with_our_metadata_is_ours_whoever_formatted_it(tmp_path):
    directory = format_as_kafka(tmp_path / "a", "orders-0")
    (directory / "odradek-metadata.db").touch()
    assert claim_directories([str(directory)], node_id=1).cluster_id == "theirs"


def test_a_directory_of_partitions_that_nobody_formatted_is_claimed(tmp_path):
    (tmp_path / "orders-0").mkdir()
    first = claim_directories([str(tmp_path)], node_id=1)
    assert claim_directories([str(tmp_path)], node_id=1) == first


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file \(log\.dirs\) cannot be used"):
        claim_directories([str(tmp_path / "file")], node_id=1)
    (tmp_path / FILE_NAME).write_text("version=1")
    with pytest.raises(ConfigError, match="is damaged"):
        claim_directories([str(tmp_path)], node_id=1)


def test_one_flipped_bit_of_meta_properties_is_mended(tmp_path):
    first = claim_directories([str(tmp_path)], node_id=1)
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert claim_directories([str(tmp_path)], node_id=1) == first


def test_a_meta_properties_that_cannot_be_mended_is_made_anew(tmp_path):
    first = claim_directories([str(tmp_path)], node_id=1)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"node.id=1", b"node.id=7").replace(b"cluster", b"cloister"))
    second = claim_directories([str(tmp_path)], node_id=1)
    assert second.cluster_id != first.cluster_id
    assert claim_directories([str(tmp_path)], node_id=1) == second
