"""The directories of a node of a cluster: which are taken, which are refused in which words, their ids."""

import base64

import pytest

from odradek.config.broker_config import ConfigError
from odradek.config.properties import parse_properties
from odradek.server.metadata.member_directories import claim_member_directories
from odradek.server.metadata.meta_properties import FILE_NAME, claim_directories, is_member

CLUSTER, OTHER_CLUSTER = "4L6g3nShT-eMCtK--X86sw", "5L6g3nShT-eMCtK--X86sw"
DIRECTORY_ID = "h8myy2htI7p_J2saIFhFiA"


def formatted(directory, *partitions, cluster_id=CLUSTER, node_id=7, directory_id=DIRECTORY_ID):
    """What kafka-storage format makes of a log directory of a broker, and a broker of Kafka afterwards."""
    directory.mkdir()
    (directory / FILE_NAME).write_text(
        f"#\n#Thu Nov 26 22:16:25 UTC 2026\nnode.id={node_id}\ndirectory.id={directory_id}\nversion=1\n"
        f"cluster.id={cluster_id}\n"
    )
    (directory / "bootstrap.checkpoint").write_bytes(b"of the storage tool")
    for partition in partitions:
        (directory / partition).mkdir()
    return directory


def claim(*directories, **more):
    return claim_member_directories(map(str, directories), **{"node_id": 7, **more})


def refusal(*directories, **more):
    with pytest.raises(ConfigError) as caught:
        claim(*directories, **more)
    assert str(caught.value).endswith(".")
    return str(caught.value)


def properties_of(directory):
    return parse_properties((directory / FILE_NAME).read_bytes())


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_new_directories_are_written_once_the_controllers_have_said_their_cluster(tmp_path):
    one, two = tmp_path / "deep" / "one", tmp_path / "two"
    claimed = claim(one, two)
    assert claimed.cluster_id is None
    assert not list(one.iterdir())
    identity = claimed.settle(CLUSTER)
    assert identity.cluster_id == CLUSTER
    assert len(set(identity.directory_ids.values())) == 2
    assert properties_of(two) == {
        "cluster.id": CLUSTER,
        "directory.id": identity.directory_ids[str(two)],
        "node.id": "7",
        "version": "1",
        "odradek.member": "true",
    }
    again = claim(one, two)
    assert again.cluster_id == CLUSTER
    before = contents(tmp_path)
    assert again.settle(CLUSTER) == again.settle() == identity
    assert contents(tmp_path) == before


def test_the_configured_cluster_needs_no_controllers(tmp_path):
    assert claim(tmp_path / "one", cluster_id=CLUSTER).settle().cluster_id == CLUSTER


def test_a_directory_that_kafkas_tool_formatted_keeps_its_id(tmp_path):
    one = formatted(tmp_path / "one")
    two = formatted(tmp_path / "two", directory_id="C_OKLMwfisjvrLkW1CKjOg")
    before = contents(tmp_path)
    claimed = claim(one, two)
    assert contents(tmp_path) == before
    identity = claimed.settle()
    assert identity.cluster_id == CLUSTER
    assert identity.directory_ids == {str(one): DIRECTORY_ID, str(two): "C_OKLMwfisjvrLkW1CKjOg"}
    (one / "orders-0").mkdir()
    assert claim(one, two).settle() == identity


def test_a_former_directory_of_kafka_without_partitions_is_taken(tmp_path):
    """After its partitions were moved away: Kafka's log of the metadata stays."""
    directory = formatted(tmp_path / "one", "__cluster_metadata-0")
    claim(directory).settle()
    assert claim(directory).settle().directory_ids == {str(directory): DIRECTORY_ID}


@pytest.mark.parametrize(
    "text",
    [
        f"version=1\ncluster.id={CLUSTER}\nnode.id=7\n",
        # Kafka does not start without a version, which it takes for 0.
        f"cluster.id={CLUSTER}\nnode.id=7\n",
        f"version=0\ncluster.id={CLUSTER}\nbroker.id=7\n",
    ],
)
def test_a_file_with_the_cluster_and_node_alone_gets_a_directory_id(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    identity = claim(tmp_path).settle()
    assert properties_of(tmp_path)["directory.id"] == identity.directory_ids[str(tmp_path)]
    assert properties_of(tmp_path)["version"] == "1"
    assert claim(tmp_path).settle() == identity


def test_a_new_id_is_never_reserved_and_never_looks_like_an_option(tmp_path):
    # Zeros, but for the version of the id, and what begins with "-" in URL-safe base64.
    chosen = [b"\xfb" * 16, bytes(16)]
    identity = claim(tmp_path, random_bytes=lambda _: chosen.pop(0)).settle(CLUSTER)
    (directory_id,) = identity.directory_ids.values()
    assert int.from_bytes(base64.urlsafe_b64decode(directory_id + "==")) >= 100


@pytest.mark.parametrize("number", [0, 1, 2, 99])
def test_a_reserved_directory_id_is_refused(tmp_path, number):
    directory_id = base64.urlsafe_b64encode(number.to_bytes(16)).rstrip(b"=").decode()
    assert "not an id of a directory" in refusal(formatted(tmp_path / "one", directory_id=directory_id))


def test_a_text_that_is_no_id_is_refused(tmp_path):
    assert "directory.id=xyz, which is not an id" in refusal(formatted(tmp_path / "one", directory_id="xyz"))


def test_a_copy_of_a_directory_is_refused(tmp_path):
    one, two = formatted(tmp_path / "one"), formatted(tmp_path / "two")
    assert "have the same directory.id" in refusal(one, two)


def test_a_cluster_that_differs_is_refused(tmp_path):
    one = formatted(tmp_path / "one")
    two = formatted(tmp_path / "two", cluster_id=OTHER_CLUSTER, directory_id="C_OKLMwfisjvrLkW1CKjOg")
    assert f"two of log.dirs is of cluster {OTHER_CLUSTER}, and directory {one} of" in refusal(one, two)
    told = refusal(one, cluster_id=OTHER_CLUSTER)
    assert f"is of cluster {CLUSTER}, and --cluster-id or CLUSTER_ID says {OTHER_CLUSTER}" in told
    before = contents(tmp_path)
    with pytest.raises(
        ConfigError, match=f"are those of cluster {OTHER_CLUSTER}, and directory .* {CLUSTER}: "
    ):
        claim(one).settle(OTHER_CLUSTER)
    with pytest.raises(
        ConfigError, match=f"{OTHER_CLUSTER}, and --cluster-id or CLUSTER_ID says {CLUSTER}: "
    ):
        claim(tmp_path / "new", cluster_id=CLUSTER).settle(OTHER_CLUSTER)
    assert contents(tmp_path) == before


def test_another_nodes_directory_is_refused(tmp_path):
    assert "set node.id=8, or name another" in refusal(formatted(tmp_path / "one", node_id=8))


def test_partitions_of_kafka_are_refused_untouched(tmp_path):
    directory = formatted(tmp_path / "one", "orders-0")
    before = contents(tmp_path)
    told = refusal(directory)
    assert "was written by Apache Kafka and has partitions (orders-0)" in told
    assert "move them to other brokers first (kafka-reassign-partitions)" in told
    assert contents(tmp_path) == before


def test_partitions_whose_owner_is_unknown_are_refused(tmp_path):
    (tmp_path / "orders-0").mkdir()
    assert "has partitions (orders-0) and no meta.properties" in refusal(tmp_path)


def test_a_directory_of_a_node_alone_is_refused_untouched(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    claim_directories([str(one), str(two)], node_id=7, cluster_id=CLUSTER)
    (one / "odradek-metadata.db").touch()
    before = contents(tmp_path)
    assert "one of log.dirs belongs to a node alone (it has odradek-metadata.db)" in refusal(one)
    assert "two of log.dirs belongs to a node alone: serve it without controllers" in refusal(two)
    assert contents(tmp_path) == before


def test_a_directory_with_the_metadata_of_a_node_alone_is_refused_whoever_formatted_it(tmp_path):
    directory = formatted(tmp_path / "one")
    (directory / "odradek-metadata.db").touch()
    assert "belongs to a node alone" in refusal(directory)


def test_a_directory_of_a_cluster_is_not_served_alone(tmp_path):
    claim(tmp_path).settle(CLUSTER)
    assert is_member(str(tmp_path))
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    for damage in (content, content.replace(b"node.id=7", b"node.id=6"), content.replace(b"id=", b"xx=")):
        path.write_bytes(damage)
        with pytest.raises(
            ConfigError, match=r"belongs to a node of a cluster: start it with process\.roles"
        ):
            claim_directories([str(tmp_path)], node_id=7)
        assert path.read_bytes() == damage


def test_an_empty_directory_beside_used_ones_is_refused_with_what_makes_it_a_new_one(tmp_path):
    one, two = formatted(tmp_path / "one"), tmp_path / "two"
    for directories in ((one, two), (two, one)):
        told = refusal(*directories)
        assert f"{two} of log.dirs has no meta.properties, while {one} has been used" in told
    lines = told.partition("with the lines ")[2].rstrip(".").replace(" and ", ", ").split(", ")
    (two / FILE_NAME).write_text("\n".join(lines))
    assert len(claim(one, two).settle().directory_ids) == 2


def test_a_directory_that_cannot_be_used_is_left_out_while_there_is_another(tmp_path):
    one, broken = formatted(tmp_path / "one"), tmp_path / "broken"
    broken.write_text("")
    (one / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":19}')
    claimed = claim(broken, one)
    identity = claimed.settle()
    assert identity.directory_ids == {str(one): DIRECTORY_ID}
    assert "cannot be used" in identity.failures[str(broken)]
    # Kafka counts a stop as unclean where a directory has failed.
    assert (claimed.previous_broker_epoch(), claim(one).previous_broker_epoch()) == (-1, 19)
    assert "broken (log.dirs) cannot be used: it is a file and not a directory." in refusal(broken)


def test_a_directory_that_cannot_be_written_any_more_is_left_out_while_there_is_another(tmp_path):
    one, two = formatted(tmp_path / "one"), tmp_path / "two"
    claimed = claim(one)
    (one / (FILE_NAME + ".tmp")).mkdir()
    with pytest.raises(ConfigError, match="cannot be used"):
        claimed.settle()
    two = formatted(two, directory_id="C_OKLMwfisjvrLkW1CKjOg")
    identity = claim(one, two).settle()
    assert list(identity.directory_ids) == [str(two)]
    assert list(identity.failures) == [str(one)]


def test_one_flipped_bit_is_mended_and_written_again(tmp_path):
    identity = claim(tmp_path).settle(CLUSTER)
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    for place in range(8 * (len(content) - len(b"#crc32=89abcdef\n"))):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert claim(tmp_path).settle() == identity
        assert properties_of(tmp_path) == parse_properties(content)


def test_a_file_that_cannot_be_mended_is_refused_since_its_id_is_lost(tmp_path):
    claim(tmp_path).settle(CLUSTER)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"node.id=7", b"node.id=1").replace(b"cluster", b"cloister"))
    assert "is damaged, and it has the id" in refusal(tmp_path)
    for text in ("", "version=1\n", "version=2\ncluster.id=x\nnode.id=7\n", "cluster.id=x\n", "\\u00zz"):
        path.write_text(text)
        assert "is damaged" in refusal(tmp_path)
