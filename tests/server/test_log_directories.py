"""A start with other log directories than there were: nothing begins anew where records lie elsewhere."""

import shutil

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.config.properties import parse_properties
from odradek.embedding.broker_form import BrokerStartError
from odradek.embedding.embedded import Broker
from odradek.server.metadata.log_directories import refuse_misplaced

PARTITIONS = 4


@pytest.fixture
def start(tmp_path):
    """Starts a broker over some of the directories, by their names."""

    def start(*names):
        return Broker(log_dirs=",".join(str(tmp_path / name) for name in names))

    return start


def send(broker, *partitions):
    """A record to each; their offsets."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=5000) as producer:
        sent = [producer.send("t", b"value", partition=one) for one in partitions]
        return [one.get(timeout=10).offset for one in sent]


def ends(broker, *partitions):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    found = consumer.end_offsets([TopicPartition("t", one) for one in partitions])
    consumer.close()
    return [found[TopicPartition("t", one)] for one in partitions]


def leaders(broker):
    """An offset of each partition, -1 where it is offline."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    (topic,) = admin.describe_topics(["t"])
    admin.close()
    return {one["partition_index"]: one["leader_id"] for one in topic["partitions"]}


@pytest.fixture
def in_second(start, tmp_path):
    """The partitions that the second directory has, of a topic with a record in each of its partitions."""
    with start("a", "b") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        admin.close()
        assert send(broker, *range(PARTITIONS)) == [0] * PARTITIONS
    found = sorted(int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("t-*"))
    assert len(found) == PARTITIONS // 2
    return found


def test_partitions_of_a_directory_that_is_left_out_are_offline_until_it_is_back(start, in_second, caplog):
    in_first = sorted(set(range(PARTITIONS)) - set(in_second))
    for _ in range(2):
        with start("a") as broker:
            found = leaders(broker)
            assert [one for one in found if found[one] == -1] == in_second
            send(broker, *in_first)
    assert (
        "2 partitions may be in a log directory that has failed or that log.dirs does not name" in caplog.text
    )
    with start("a", "b") as broker:
        assert -1 not in leaders(broker).values()
        assert ends(broker, *in_first) == [3, 3]
        assert ends(broker, *in_second) == [1, 1]


def test_a_directory_of_which_nothing_is_missed_is_forgotten(start, in_second, tmp_path, caplog):
    for index in in_second:
        # As after moving them: the checkpoints know nothing of what is new to a directory.
        (tmp_path / "b" / f"t-{index}").rename(tmp_path / "a" / f"t-{index}")
    for _ in range(2):
        with start("a") as broker:
            assert ends(broker, *range(PARTITIONS)) == [1] * PARTITIONS
    assert "log.dirs" not in caplog.text


def test_a_topic_of_a_missing_directory_may_be_deleted_and_made_anew(start, in_second):
    with start("a") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.delete_topics(["t"])
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        admin.close()
        assert send(broker, *range(PARTITIONS)) == [0] * PARTITIONS
        assert -1 not in leaders(broker).values()


def test_a_directory_that_is_added_is_used(start, in_second):
    with start("a", "b", "c") as broker:
        assert ends(broker, *range(PARTITIONS)) == [1] * PARTITIONS
    with start("a", "c", "b") as broker:
        assert ends(broker, *range(PARTITIONS)) == [1] * PARTITIONS


def refused(start, *names):
    with pytest.raises(BrokerStartError) as error:
        start(*names).start()
    return str(error.value)


def test_the_directory_with_the_metadata_has_to_be_the_first(start, in_second, tmp_path):
    assert refused(start, "b", "a") == (
        f"Directory {tmp_path / 'a'} of log.dirs holds the metadata of the cluster (__cluster_metadata-0), "
        "which belong in the first one: name it first."
    )
    assert not (tmp_path / "b" / "__cluster_metadata-0").exists()


def test_a_first_directory_that_is_empty_is_refused(start, in_second, tmp_path):
    (tmp_path / "a").rename(tmp_path / "not-mounted")
    (tmp_path / "a").mkdir()
    assert refused(start, "a", "b") == (
        f"Directory {tmp_path / 'a'} is the first of log.dirs and has no meta.properties, while "
        f"{tmp_path / 'b'} has been used: is its disk mounted? The metadata of the cluster are in the "
        "first one."
    )
    assert not list((tmp_path / "a").iterdir())


def test_another_directory_that_is_empty_is_refused(start, in_second, tmp_path):
    ids = parse_properties((tmp_path / "b" / "meta.properties").read_bytes())
    (tmp_path / "b").rename(tmp_path / "not-mounted")
    for _ in range(2):
        assert refused(start, "a", "b") == (
            f"Directory {tmp_path / 'b'} of log.dirs is new to this broker, and a directory that it had is "
            f"missing (directory.id={ids['directory.id']}): is its disk mounted? To go on without that one "
            f"start once without {tmp_path / 'b'}; partitions that it had are offline then."
        )
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "not-mounted").rename(tmp_path / "b")
    with start("a", "b") as broker:
        assert ends(broker, *range(PARTITIONS)) == [1] * PARTITIONS


def test_after_a_start_without_a_directory_there_may_be_another_one(start, in_second, tmp_path):
    with start("a"):
        pass
    with start("a", "c") as broker:
        found = leaders(broker)
        assert [one for one in found if found[one] == -1] == in_second
    with start("a", "c", "b") as broker:
        assert ends(broker, *range(PARTITIONS)) == [1] * PARTITIONS


def test_two_directories_with_metadata_are_refused(start, in_second, tmp_path):
    with start("c"):
        pass
    assert "name one of them" in refused(start, "a", "c")


def test_beside_a_new_directory_one_of_kafkas_is_refused_as_that(start, tmp_path):
    kafkas = tmp_path / "b"
    (kafkas / "t-0").mkdir(parents=True)
    (kafkas / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n")
    assert "was written by Apache Kafka" in refused(start, "a", "b")


def test_directories_that_nobody_has_used_are_as_good_as_any(tmp_path):
    refuse_misplaced([str(tmp_path / "a"), str(tmp_path / "b")])
