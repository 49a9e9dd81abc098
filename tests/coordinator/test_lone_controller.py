"""The controller of a node alone: what a start registers, who leads then, and what only the process knows."""

import itertools
from dataclasses import replace

import pytest

from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.features import FEATURES, first_levels
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import NO_LEADER, Broker, Endpoint
from odradek.coordinator.controller.alone import LoneController
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.coordinator.controller.bootstrap import first_records
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    KRaftVersionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek.wire.work import finish
from tests.coordinator.memory_metadata_log import MemoryMetadataLog

LEVELS = first_levels()
LEVEL = LEVELS["metadata.version"]
ME, OTHER = 1, 2
HERE, ABSENT = (bytes(15) + bytes([number]) for number in (200, 201))
TOPIC_ID = bytes(15) + b"\xff"
DEFAULTS = PartitionDefaults(node_id=ME)
NODE = Broker(
    ME,
    {"PLAINTEXT": Endpoint("", 9092)},
    directories=(HERE,),
    features={name: (one.lowest, one.highest) for name, one in FEATURES.items()},
)


@pytest.fixture
def log():
    log = MemoryMetadataLog(KRaftVersionRecord(version=0, kraft_version=1))
    log.append(first_records(LEVELS, 1), LEVEL)
    return log


def started(log, node=NODE):
    ids = itertools.count(1000 * (log.end_offset + 1))
    controller = LoneController(log, node_id=ME, cluster_id="c", new_id=lambda: next(ids).to_bytes(16, "big"))
    controller.load()
    controller.register(node, lambda: DEFAULTS)
    return controller


def written(log, after):
    """Records after an offset."""
    return [one for batch in log.held if batch.last_offset >= after for one in batch.records]


def test_a_second_start_writes_nothing_and_leader_epochs_stay(log):
    controller = started(log)
    controller.create_topics([NewTopic("t", 3)])
    before, end_offset = controller.view, log.end_offset
    again = started(log)
    assert log.end_offset == end_offset
    assert again.view.topics == before.topics
    assert [one.leader for one in again.view.topics["t"].partitions] == [ME] * 3
    assert again.view.brokers.keys() == {ME}
    assert again.view.controller_id == ME


@pytest.mark.parametrize(
    "other",
    [
        {"endpoints": {"PLAINTEXT": Endpoint("", 9093)}},
        {"rack": "r"},
        {"features": {"metadata.version": (7, 33)}},
        {"directories": (HERE, ABSENT)},
    ],
)
def test_what_is_other_than_in_the_log_is_registered_in_one_batch(log, other):
    controller = started(log)
    controller.create_topics([NewTopic("t", 1)])
    end_offset, batches = log.end_offset, len(log.held)
    again = started(log, replace(NODE, **other))
    (record,) = written(log, end_offset)
    assert isinstance(record, RegisterBrokerRecord)
    assert len(log.held) == batches + 1
    assert again.view.brokers[ME].epoch == end_offset
    assert again.view.topics["t"] == controller.view.topics["t"]


def test_on_the_log_of_a_cluster_the_node_leads_what_it_may(log):
    """Kafka's combined node has stopped, and fenced itself, beside another broker."""
    partitions = {
        0: ([ME], [ME], NO_LEADER),
        1: ([ME, OTHER], [ME, OTHER], OTHER),
        2: ([OTHER], [OTHER], OTHER),
        # It was the last one in sync, and was killed.
        3: ([ME], [], NO_LEADER),
    }
    log.append(
        [
            RegisterBrokerRecord(broker_id=ME, fenced=True, log_dirs=[HERE]),
            RegisterBrokerRecord(broker_id=OTHER, fenced=False, log_dirs=[ABSENT]),
            TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=replicas,
                    isr=isr,
                    leader=leader,
                    directories=[HERE if one == ME else ABSENT for one in replicas],
                    last_known_elr=None if isr else [ME],
                )
                for index, (replicas, isr, leader) in partitions.items()
            ),
        ],
        LEVEL,
    )
    end_offset, batches = log.end_offset, len(log.held)
    view = started(log).view
    assert [one.leader for one in view.topics["t"].partitions] == [ME, ME, NO_LEADER, ME]
    assert view.brokers.keys() == {ME}
    assert len(log.held) == batches + 1
    kinds = [type(one) for one in written(log, end_offset)]
    assert kinds.count(RegisterBrokerRecord) == kinds.count(BrokerRegistrationChangeRecord) == 1
    assert kinds.count(PartitionChangeRecord) == 4


def test_a_partition_in_a_directory_that_is_missing_is_offline_and_led_again_when_it_is_back(log):
    controller = started(log, replace(NODE, directories=(HERE, ABSENT)))
    controller.create_topics([NewTopic("t", 1)])
    change = PartitionChangeRecord(
        partition_id=0, topic_id=controller.view.topics["t"].topic_id, directories=[ABSENT]
    )
    finish(controller.changing(at_once(lambda draft: draft.add_records([change]))))
    before = controller.view.topics["t"].partitions[0]
    (without,) = started(log).view.topics["t"].partitions
    assert (without.offline, without.leader_epoch) == ((ME,), before.leader_epoch)
    (back,) = started(log, replace(NODE, directories=(HERE, ABSENT))).view.topics["t"].partitions
    assert (back.offline, back.leader, back.leader_epoch) == ((), ME, before.leader_epoch)


def test_replicas_on_a_failed_disk_are_offline_in_each_view_and_in_no_record(log):
    controller = started(log)
    controller.create_topics([NewTopic("t", 2)])
    end_offset, views = log.end_offset, []
    controller.publisher.subscribe(lambda view, change: views.append(view))

    def offline():
        return [one.offline for one in controller.view.topics["t"].partitions]

    controller.set_offline(ME, [("t", 1), ("gone", 0)])
    controller.set_offline(ME, [("t", 1), ("gone", 0)])
    assert (len(views), offline()) == (1, [(), (ME,)])
    assert log.end_offset == end_offset
    controller.create_topics([NewTopic("u", 1)])
    assert offline() == [(), (ME,)]
    controller.set_offline(ME, [])
    assert offline() == [(), ()]
    assert [one.offline for one in started(log).view.topics["t"].partitions] == [(), ()]


def test_deleted_topics_are_known_to_a_start_until_there_is_a_snapshot(log):
    controller = started(log)
    controller.create_topics([NewTopic("t", 1), NewTopic("u", 1)])
    topic_id = controller.view.topics["t"].topic_id
    controller.delete_topics(["t"])
    assert controller.deletions == {topic_id}
    controller.finish_deletion(topic_id)
    assert controller.deletions == set()
    again = started(log)
    assert again.deletions == {topic_id}
    log.replace_by_snapshot(snapshot_records(again.state), LEVEL)
    assert started(log).deletions == set()


def test_a_node_whose_directories_are_all_cordoned_takes_no_topic(log):
    controller = started(log)
    controller.publisher.logs.takes_replicas = lambda node_id: False
    (result,) = controller.create_topics([NewTopic("t", 1)])
    assert isinstance(result.error, KafkaError)
    assert result.error.code.name == "INVALID_REPLICATION_FACTOR"
