"""Requests that a controller refuses, changes that it makes, and that a restart finds the same."""

import copy
import itertools

import pytest

from odradek.coordinator.cluster.changes import ConfigChange, GroupOwner, TopicDefaults
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.publishing import NodeLogs
from odradek.coordinator.cluster.topics import (
    NewPartitions,
    NewTopic,
)
from odradek.coordinator.controller.machine import Controller
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from odradek.wire.work import finish
from tests.coordinator.memory_metadata_log import MemoryMetadataLog


def check_configs(name, configs):
    if "bad.setting" in configs:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "bad.setting is bad")


def machine_over(log: MemoryMetadataLog, *brokers: int) -> Controller:
    """A controller that has loaded what the log has, and these brokers alone."""
    brokers = brokers or (1,)
    if not log.end_offset:
        log.append([FeatureLevelRecord(name="metadata.version", feature_level=33)], 33)
    controller = Controller(
        log,
        node_id=1,
        cluster_id="c",
        new_id=new_ids(log.end_offset),
        defaults=TopicDefaults(partition_count=2),
        check_topic_configs=check_configs,
        check_broker_configs=check_configs,
        check_group_configs=check_configs,
    )
    controller.load()
    before = controller.view.registrations
    records: list[MetadataRecord] = [
        UnregisterBrokerRecord(broker_id=one, broker_epoch=broker.epoch)
        for one, broker in before.items()
        if one not in brokers
    ]
    records += [
        RegisterBrokerRecord(broker_id=one, fenced=False, log_dirs=[directory_of(one)])
        for one in brokers
        if one not in before
    ]
    add_records(controller, *records)
    return controller


def new_ids(after: int):
    numbers = itertools.count(after * 1_000 + 1)
    return lambda: next(numbers).to_bytes(16, "big")


def directory_of(node_id: int) -> bytes:
    return (1_000 + node_id).to_bytes(16, "big")


def add_records(controller: Controller, *records) -> None:
    finish(controller.changing(at_once(lambda draft: draft.add_records(records))))


def cordon(machine: Controller, *cordoned: int) -> None:
    """These brokers take no replicas, all others do."""
    brokers = machine.view.registrations.values()
    changes = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.node_id,
            broker_epoch=broker.epoch,
            cordoned_log_dirs=list(broker.directories) if broker.node_id in cordoned else [],
        )
        for broker in brokers
    ]
    add_records(machine, *changes)


@pytest.fixture
def store():
    return MemoryMetadataLog()


@pytest.fixture
def machine(store):
    return machine_over(store)


def codes(results) -> list[str]:
    return ["NONE" if result.error is None else result.error.code.name for result in results]


def set_configs(machine, *owners_and_configs, **options) -> list[str]:
    changes = [
        ConfigChange(owner, lambda _, configs=configs: configs) for owner, configs in owners_and_configs
    ]
    refusals = finish(machine.changing_configs(changes, **options))
    return ["NONE" if refusal is None else refusal.code.name for refusal in refusals]


def create(machine, name, *arguments, **options) -> str:
    return codes(machine.create_topics([NewTopic(name, *arguments, **options)]))[0]


# Creating


def test_a_created_topic_is_in_the_view_by_name_and_by_id(machine):
    (result,) = machine.create_topics([NewTopic("t", 3, configs={"retention.ms": "5"})])
    topic = machine.view.topic("t")
    assert result.topic == topic == machine.view.topic_by_id(topic.topic_id)
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert machine.view.leader_of("t", 2) == 1
    assert machine.view.partition("t", 0).isr == (1,)
    assert topic.configs == {"retention.ms": "5"}
    assert not topic.is_internal
    assert machine.view.partition("t", 3) is machine.view.partition("t", -1) is None
    assert machine.view.leader_of("none", 0) == -1


def test_minus_one_stands_for_the_defaults(machine):
    create(machine, "t")
    assert len(machine.view.topic("t").partitions) == 2
    assert machine.view.topic("t").replication_factor == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\n"])
def test_illegal_names_are_refused(machine, name):
    assert create(machine, name) == "INVALID_TOPIC_EXCEPTION"


def test_a_name_of_249_characters_is_fine(machine):
    assert create(machine, "a" * 249) == "NONE"


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 0), "INVALID_PARTITIONS"),
        (NewTopic("t", -2), "INVALID_PARTITIONS"),
        (NewTopic("t", 10_001), "POLICY_VIOLATION"),
        (NewTopic("t", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("t", 1, -2), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("t", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("t", 1, assignments=[(0, [1])]), "INVALID_REQUEST"),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), "INVALID_REQUEST"),
        (NewTopic("t", assignments=[(0, [])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(0, [7])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(0, [1, 1])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(0, [1]), (0, [1])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(1, [1])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("t", assignments=[(1, [2, 1]), (0, [1, 2])]), "NONE"),
        (NewTopic("t", configs={"retention.ms": None}), "INVALID_CONFIG"),
        (NewTopic("t", configs={"bad.setting": "1"}), "INVALID_CONFIG"),
        (NewTopic("taken"), "TOPIC_ALREADY_EXISTS"),
        (NewTopic("one.two"), "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(store, topic, code):
    machine = machine_over(store, 1, 2)
    machine.create_topics([NewTopic("taken"), NewTopic("one_two")])
    if topic.replication_factor == 2:
        machine = machine_over(store)
    before = machine.view
    assert codes(machine.create_topics([topic])) == [code]
    assert (machine.view is before) == (code != "NONE")


def test_one_refusal_does_not_stop_the_others_of_a_request(machine):
    results = machine.create_topics([NewTopic("a"), NewTopic("b", 0), NewTopic("c")])
    assert codes(results) == ["NONE", "INVALID_PARTITIONS", "NONE"]
    assert set(machine.view.topics) == {"a", "c"}


def test_a_request_may_not_create_too_many_partitions_in_all(machine):
    results = machine.create_topics([NewTopic("a", 6_000), NewTopic("b", 6_000), NewTopic("c", 4_000)])
    assert codes(results) == ["NONE", "POLICY_VIOLATION", "NONE"]


def test_validating_only_changes_nothing(machine, store):
    before, held = machine.view, copy.copy(store.held)
    (result,) = machine.create_topics([NewTopic("t", 4)], validate_only=True)
    assert len(result.topic.partitions) == 4
    assert machine.view is before
    assert store.held == held
    assert create(machine, "t") == "NONE"


def test_a_store_that_fails_leaves_everything_as_it_was(machine, store):
    before = machine.view
    store.fails = True
    with pytest.raises(KafkaError):
        machine.create_topics([NewTopic("a.b")])
    assert machine.view is before
    assert create(machine, "a_b") == "NONE"


def test_internal_topics_are_flagged(machine):
    create(machine, "__consumer_offsets", 50)
    assert machine.view.topic("__consumer_offsets").is_internal


# Deleting and growing


def test_a_topic_made_anew_has_a_new_id_and_frees_its_name(machine, store):
    create(machine, "a.b", 3, configs={"retention.ms": "5"})
    old = machine.view.topic("a.b")
    assert create(machine, "a_b") == "INVALID_TOPIC_EXCEPTION"
    assert codes(machine.delete_topics(["a.b", "none"])) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert machine.view.topic_by_id(old.topic_id) is None
    assert machine_over(store).view.topics == {}
    assert create(machine, "a_b") == "NONE"
    assert machine.view.topic("a_b").topic_id != old.topic_id


def test_growing_keeps_what_is_there(store):
    machine = machine_over(store, 1, 2, 3)
    create(machine, "t", 2, 2)
    old = machine.view.topic("t")
    machine.create_partitions([NewPartitions("t", 4, [[3, 1], [2, 3]])])
    grown = machine.view.topic("t")
    assert grown.partitions[:2] == old.partitions
    assert [partition.replicas for partition in grown.partitions[2:]] == [(3, 1), (2, 3)]
    assert machine_over(store).view.topics == machine.view.topics


@pytest.mark.parametrize(
    ("growth", "code"),
    [
        (NewPartitions("none", 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        (NewPartitions("t", 2), "INVALID_PARTITIONS"),
        (NewPartitions("t", 1), "INVALID_PARTITIONS"),
        (NewPartitions("t", -1), "INVALID_PARTITIONS"),
        (NewPartitions("t", 4, [[1]]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewPartitions("t", 3, [[9]]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewPartitions("t", 3, []), "INVALID_REPLICA_ASSIGNMENT"),
        (NewPartitions("t", 3, [[1]]), "NONE"),
    ],
)
def test_growth_is_refused_as_kafka_does(machine, growth, code):
    create(machine, "t", 2)
    assert codes(machine.create_partitions([growth], validate_only=True)) == [code]
    assert len(machine.view.topic("t").partitions) == 2


def test_too_much_growth_is_refused_as_a_whole(machine):
    create(machine, "t", 2)
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        machine.create_partitions([NewPartitions("t", 20_000)])
    assert len(machine.view.topic("t").partitions) == 2


def test_brokers_that_take_no_replicas_get_none(store):
    machine = machine_over(store, 1, 2, 3)
    cordon(machine, 1, 3)
    assert create(machine, "t", 3) == "NONE"
    assert {partition.leader for partition in machine.view.topic("t").partitions} == {2}
    assert create(machine, "u", 1, 2) == "INVALID_REPLICATION_FACTOR"
    cordon(machine, 1, 2, 3)
    assert create(machine, "u", 1, 1) == "INVALID_REPLICATION_FACTOR"
    assert codes(machine.create_partitions([NewPartitions("t", 4)])) == ["INVALID_REPLICATION_FACTOR"]
    assert create(machine, "u", assignments=[(0, [3])]) == "INVALID_REPLICA_ASSIGNMENT"
    growth = NewPartitions("t", 4, [[1]])
    assert codes(machine.create_partitions([growth])) == ["INVALID_REPLICA_ASSIGNMENT"]
    cordon(machine)
    assert codes(machine.create_partitions([growth])) == ["NONE"]
    assert machine.view.leader_of("t", 3) == 1


# Configuration, producer ids, features


def test_overrides_are_what_a_change_makes_of_them(machine, store):
    create(machine, "t", configs={"a": "1", "b": "2"})
    change = ConfigChange("t", lambda configs: {**configs, "b": configs["b"] + "3"})
    assert finish(machine.changing_configs([change, change])) == [None, None]
    assert machine.view.topic("t").configs == {"a": "1", "b": "233"}
    assert set_configs(machine, ("t", {"c": "4"})) == ["NONE"]
    assert machine.view.topic("t").configs == {"c": "4"} == machine_over(store).view.topic("t").configs


def test_one_refusal_does_not_stop_other_changes_of_settings(machine, store):
    create(machine, "t")
    asked = [("t", {"bad.setting": "1"}), ("none", {}), (1, {"a": "1"}), (None, {"bad.setting": "1"})]
    expected = ["INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION", "NONE", "INVALID_CONFIG"]
    assert set_configs(machine, *asked, validate_only=True) == expected
    assert machine.view.broker_configs == {}
    assert set_configs(machine, *asked) == expected
    assert machine_over(store).view.broker_configs == {1: {"a": "1"}}


def test_settings_are_judged_before_it_is_looked_whether_their_topic_exists(machine):
    bad = {"bad.setting": "1"}
    asked = [("none", bad), ("no good", bad), ("", bad)]
    assert set_configs(machine, *asked) == ["INVALID_CONFIG", "INVALID_TOPIC_EXCEPTION", "INVALID_REQUEST"]


def test_a_change_may_refuse_by_itself(machine):
    def refuse(configs):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    (refusal,) = finish(machine.changing_configs([ConfigChange("none", refuse)]))
    assert refusal.code is ErrorCode.POLICY_VIOLATION


def test_a_broker_has_overrides_of_its_own_and_shares_those_of_all(machine, store):
    assert set_configs(machine, (1, {"a": "1"}), (None, {"b": "2"})) == ["NONE", "NONE"]
    assert machine.view.broker_configs == {1: {"a": "1"}, None: {"b": "2"}}
    set_configs(machine, (None, {}))
    assert machine_over(store).view.broker_configs == machine.view.broker_configs == {1: {"a": "1"}}


def test_a_group_has_settings_of_its_own_whatever_its_id(machine, store):
    ids = ["g", "a/b", "/", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", "g "]
    assert set_configs(machine, *((GroupOwner(one), {"a.b": one}) for one in ids)) == ["NONE"] * len(ids)
    assert machine.view.group_configs == {one: {"a.b": one} for one in ids}
    assert machine_over(store).view.group_configs == machine.view.group_configs
    assert machine.view.topics == {} == machine.view.broker_configs
    set_configs(machine, (GroupOwner("g"), {}), (GroupOwner("a/b"), {"c": "1"}))
    assert machine.view.group_configs.keys() == set(ids) - {"g"}
    assert machine_over(store).view.group_configs == machine.view.group_configs


def test_settings_of_groups_are_judged_and_told(machine, store):
    changes = []
    machine.publisher.subscribe(lambda view, change: changes.append(list(change.groups_configured)))
    asked = [
        (GroupOwner("g"), {"bad.setting": "1"}),
        (GroupOwner(""), {"a": "1"}),
        (GroupOwner("h"), {"a": "1"}),
    ]
    assert set_configs(machine, *asked, validate_only=True) == ["INVALID_CONFIG", "INVALID_REQUEST", "NONE"]
    assert set_configs(machine, *asked) == ["INVALID_CONFIG", "INVALID_REQUEST", "NONE"]
    assert machine_over(store).view.group_configs == {"h": {"a": "1"}}
    assert changes == [["h"]]


def test_a_store_that_fails_leaves_the_settings_as_they_were(machine, store):
    create(machine, "t", configs={"a": "1"})
    store.fails = True
    with pytest.raises(KafkaError):
        set_configs(machine, ("t", {"a": "2"}), (1, {"a": "2"}))
    assert machine.view.topic("t").configs == {"a": "1"}
    assert machine.view.broker_configs == {}
    assert set_configs(machine, ("t", {"a": "2"})) == ["NONE"]


def test_changed_settings_are_applied_after_they_have_been_published(store):
    applied = []

    class Logs(NodeLogs):
        def apply_configs(self, change):
            applied.append((change.configured, change.brokers_configured, machine.view))
            yield None

    machine = machine_over(store)
    machine.publisher.logs = Logs()
    create(machine, "t", 1)
    set_configs(machine, ("t", {"a": "1"}), (None, {"b": "2"}))
    set_configs(machine, ("t", {"a": "1"}))  # nothing new
    ((configured, brokers, view),) = applied
    assert [topic.configs for topic in configured] == [{"a": "1"}]
    assert list(brokers) == [None]
    assert view is machine.view


def test_producer_ids_never_come_twice_whatever_crashes(machine, store):
    given = [machine.allocate_producer_ids(), machine.allocate_producer_ids()]
    store.fails = True
    with pytest.raises(KafkaError):
        machine.allocate_producer_ids()
    given.append(machine_over(store).allocate_producer_ids())
    ids = [producer_id for block in given for producer_id in block]
    assert len(set(ids)) == len(ids) == 3_000


def test_feature_levels_raise_the_epoch_and_survive(machine, store):
    epochs = []
    for levels in ({"group.version": 1, "metadata.version": 30}, {"group.version": 0}):
        machine.set_features(levels)
        epochs.append(machine.view.features_epoch)
    view = machine_over(store).view
    assert view.features == {"metadata.version": 30} == machine.view.features
    assert epochs[0] < epochs[1] == view.features_epoch


ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
MIN_INSYNC = "min.insync.replicas"


def test_with_eligible_leaders_comes_one_setting_for_all_brokers(store):
    machine = machine_over(store, 1, 2)
    set_configs(machine, (1, {MIN_INSYNC: "2", "a": "1"}), (2, {MIN_INSYNC: "3"}))
    heard = []
    machine.publisher.subscribe(lambda view, change: heard.append(change.brokers_configured))
    machine.set_features({ELIGIBLE_LEADERS: 1})
    assert machine.view.broker_configs == {1: {"a": "1"}, None: {MIN_INSYNC: "1"}}
    assert [sorted(map(str, owners)) for owners in heard] == [["1", "2", "None"]]
    again = machine_over(store)
    assert again.view.broker_configs == machine.view.broker_configs
    assert again.view.features[ELIGIBLE_LEADERS] == 1


def test_a_setting_for_all_brokers_that_there_is_stays(machine):
    set_configs(machine, (None, {MIN_INSYNC: "2"}))
    machine.set_features({ELIGIBLE_LEADERS: 1})
    assert machine.view.broker_configs == {None: {MIN_INSYNC: "2"}}
    machine.set_features({ELIGIBLE_LEADERS: 0})
    assert machine.view.broker_configs == {None: {MIN_INSYNC: "2"}}


def test_a_change_of_features_that_fails_changes_no_setting(machine, store):
    before = machine.view
    store.fails = True
    with pytest.raises(KafkaError):
        machine.set_features({ELIGIBLE_LEADERS: 1})
    assert machine.view is before
    assert ELIGIBLE_LEADERS not in before.features


def refusal_of(machine, owner, after, *names):
    (refusal,) = finish(machine.changing_configs([ConfigChange(owner, lambda _: after, names=names)]))
    return None if refusal is None else (refusal.code.name, refusal.message)


def test_with_eligible_leaders_the_setting_is_neither_of_one_broker_nor_gone(machine):
    machine.set_features({ELIGIBLE_LEADERS: 1})
    for after in ({MIN_INSYNC: "2"}, {}):
        code, message = refusal_of(machine, 1, after, MIN_INSYNC)
        assert (code, message.partition(" ")[0]) == ("INVALID_CONFIG", "Broker-level")
    assert refusal_of(machine, None, {"a": "1"}, "a")[1].startswith("Cluster-level")
    assert refusal_of(machine, None, {MIN_INSYNC: "2"}, MIN_INSYNC) is None
    assert refusal_of(machine, 1, {"a": "1"}, "a") is None
    machine.set_features({ELIGIBLE_LEADERS: 0})
    assert refusal_of(machine, 1, {MIN_INSYNC: "2"}, MIN_INSYNC) is None
    assert refusal_of(machine, None, {}, MIN_INSYNC) is None


# Views


def test_a_restart_finds_the_same(machine, store):
    machine.create_topics([NewTopic("b.c", 3, configs={"x/y": "a/b"}), NewTopic("__consumer_offsets", 5)])
    machine.create_partitions([NewPartitions("b.c", 12)])
    again = machine_over(store)
    assert again.view.topics == machine.view.topics
    assert again.view.topic_names == machine.view.topic_names
    assert create(again, "b_c") == "INVALID_TOPIC_EXCEPTION"


def test_subscribers_hear_what_is_different(machine):
    heard = []
    machine.publisher.subscribe(lambda view, change: heard.append((view, change)))
    create(machine, "t", 2)
    machine.create_partitions([NewPartitions("t", 3)])
    set_configs(machine, ("t", {"a": "1"}))
    set_configs(machine, ("t", {"a": "1"}))
    set_configs(machine, (1, {"a": "1"}))
    machine.delete_topics(["t"])
    created, grown, configured, broker, deleted = [change for _, change in heard]
    assert [(topic.name, partition.index) for topic, partition in created.created] == [("t", 0), ("t", 1)]
    assert [(topic.name, partition.index) for topic, partition in grown.created] == [("t", 2)]
    assert [topic.configs for topic in configured.configured] == [{"a": "1"}]
    assert list(broker.brokers_configured) == [1]
    assert [topic.name for topic in deleted.deleted] == ["t"]
    versions = [view.version for view, _ in heard]
    assert versions == sorted(set(versions))


def test_a_view_is_not_changed_by_what_comes_after_it(machine):
    create(machine, "t")
    view = machine.view
    machine.delete_topics(["t"])
    create(machine, "u")
    assert list(view.topics) == ["t"]
    assert view.topic_by_id(view.topic("t").topic_id).name == "t"
