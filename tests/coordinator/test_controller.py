"""The controller: the records that its decisions become, and what it makes of records."""

import itertools

import pytest

from odradek.coordinator.cluster.changes import (
    ClientMetricsOwner,
    ConfigChange,
    GroupOwner,
    TopicDefaults,
)
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.features import first_levels
from odradek.coordinator.cluster.publishing import NodeLogs
from odradek.coordinator.cluster.topics import NewPartitions, NewTopic
from odradek.coordinator.cluster.view import MIGRATING, UNASSIGNED
from odradek.coordinator.controller.bootstrap import first_records
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.security.acls import Acl
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import Deletion, ScramCredential, Upsertion
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    KRaftVersionRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from odradek.wire.work import finish
from tests.coordinator.memory_metadata_log import MemoryMetadataLog

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
MIN_INSYNC = "min.insync.replicas"
ELR = "eligible.leader.replicas.version"
DISK, OTHER_DISK = b"d" * 16, b"e" * 16
KRAFT_1 = KRaftVersionRecord(version=0, kraft_version=1)


def controller_over(log, **options):
    numbers = itertools.count(log.end_offset * 100 + 1)
    options = {"node_id": 1, "new_id": lambda: next(numbers).to_bytes(16, "big"), **options}
    controller = Controller(log, cluster_id="c", **options)
    controller.load()
    return controller


def formatted(levels=None, min_insync_replicas=1):
    levels = first_levels() if levels is None else levels
    log = MemoryMetadataLog(KRAFT_1)
    log.append(first_records(levels, min_insync_replicas), levels["metadata.version"])
    return log


@pytest.fixture
def log():
    return formatted()


@pytest.fixture
def controller(log):
    controller = controller_over(log)
    add(controller, broker(1))
    return controller


def broker(node_id, fenced=False, log_dirs=(DISK,), **fields):
    end_points = [BrokerEndpoint(name="OUT", host=f"h{node_id}", port=9092)]
    return RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=10,
        end_points=end_points,
        fenced=fenced,
        log_dirs=list(log_dirs),
        **fields,
    )


def add(controller, *records):
    finish(controller.changing(at_once(lambda draft: draft.add_records(records))))


def change(controller, edit):
    return finish(controller.changing(at_once(edit)))


def written(log, act):
    """The records that are appended while it acts, and its result."""
    before = len(log.records)
    result = act()
    return log.records[before:], result


def config(kind, owner, name, value):
    return ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value)


def configure(controller, owner, after, *names):
    (refusal,) = finish(controller.changing_configs([ConfigChange(owner, lambda _: after, names=names)]))
    return None if refusal is None else refusal.code


# Topics


def test_a_topic_is_its_name_its_settings_and_its_partitions(controller, log):
    topic = NewTopic("t", 2, configs={"retention.ms": "5", MIN_INSYNC: "1"})
    records, (result,) = written(log, lambda: controller.create_topics([topic]))
    topic_id = result.topic.topic_id
    partitions = [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DISK],
        )
        for index in range(2)
    ]
    assert records == [
        TopicRecord(name="t", topic_id=topic_id),
        config(TOPIC, "t", "retention.ms", "5"),
        config(TOPIC, "t", MIN_INSYNC, "1"),
        ClearElrRecord(topic_name="t"),
        *partitions,
    ]


def test_two_topics_of_a_request_are_one_batch(controller, log):
    batches = len(log.held)
    controller.create_topics([NewTopic("a", 1), NewTopic("b", 1), NewTopic("a", 1)])
    assert len(log.held) == batches + 1
    assert [one.name for one in log.held[-1].records if isinstance(one, TopicRecord)] == ["a", "b"]


def test_a_growth_is_its_new_partitions_and_a_deletion_one_record(controller, log):
    (created,) = controller.create_topics([NewTopic("t", 1)])
    records, _ = written(log, lambda: controller.create_partitions([NewPartitions("t", 3)]))
    assert [(type(one), one.partition_id) for one in records] == [(PartitionRecord, 1), (PartitionRecord, 2)]
    records, _ = written(log, lambda: controller.delete_topics(["t"]))
    assert records == [RemoveTopicRecord(topic_id=created.topic.topic_id)]


def test_a_large_request_is_a_transaction_as_a_whole(controller, log):
    records, _ = written(log, lambda: controller.create_topics([NewTopic("t", 10_000)]))
    assert isinstance(records[0], BeginTransactionRecord)
    assert isinstance(records[-1], EndTransactionRecord)
    again = controller_over(log)
    assert again.view.topics == controller.view.topics
    assert again.state.offset == controller.state.offset == log.end_offset - 1


def test_a_transaction_that_a_crash_has_left_open_is_aborted(log):
    log.append([BeginTransactionRecord(), TopicRecord(name="t", topic_id=b"t" * 16)], 33)
    controller = controller_over(log)
    assert isinstance(log.records[-1], AbortTransactionRecord)
    assert not controller.view.topics
    assert not written(log, lambda: controller_over(log))[0]


def test_only_active_brokers_are_in_sync_and_the_first_of_them_leads(controller):
    add(controller, broker(2, fenced=True, log_dirs=[DISK, OTHER_DISK]), broker(3, log_dirs=[]))
    controller.create_topics([NewTopic("t", assignments=[(0, [2, 3, 1])])])
    partition = controller.view.partition("t", 0)
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3, 1), (3, 1), 3)
    assert partition.directories == (UNASSIGNED, MIGRATING, DISK)


def test_before_the_metadata_version_with_directories_none_are_written():
    log = formatted(first_levels("3.6"))
    controller = controller_over(log)
    add(controller, broker(1, log_dirs=[]))
    records, _ = written(log, lambda: controller.create_topics([NewTopic("t", 1)]))
    assert records[-1].directories == []
    assert controller.view.partition("t", 0).directories == (MIGRATING,)


@pytest.mark.parametrize("state", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_a_partition_that_nobody_could_lead_is_refused(log, state):
    controller = controller_over(log)
    add(controller, broker(1, **state))
    results = [
        *controller.create_topics([NewTopic("t", 1), NewTopic("t", assignments=[(0, [1])])]),
        *controller.create_topics([NewTopic("t", assignments=[(0, [7])])]),
    ]
    assert [one.error.code.name for one in results] == [
        "INVALID_REPLICATION_FACTOR",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICA_ASSIGNMENT",
    ]


def test_growth_on_brokers_that_are_fenced_is_refused(controller):
    controller.create_topics([NewTopic("t", 1)])
    add(controller, broker(1, fenced=True))
    growths = [NewPartitions("t", 2), NewPartitions("t", 2, [[1]])]
    codes = [one.error.code.name for growth in growths for one in controller.create_partitions([growth])]
    assert codes == ["INVALID_REPLICATION_FACTOR", "INVALID_REPLICA_ASSIGNMENT"]


def test_replicas_are_on_as_many_racks_as_there_are(controller):
    add(controller, *[broker(one, rack="ab"[one % 2]) for one in (1, 2, 3, 4)])
    controller.create_topics([NewTopic("t", 20, 2)])
    assert all({one % 2 for one in part.replicas} == {0, 1} for part in controller.view.topic("t").partitions)


def test_partitions_of_this_node_are_made_before_the_view_has_them(controller):
    made = []

    class Logs(NodeLogs):
        def make_partitions(self, created):
            made.append((controller.view.topic("t"), [partition.index for _, partition in created]))
            yield None

    controller.publisher.logs = Logs()
    add(controller, broker(2))
    made.clear()
    controller.create_topics([NewTopic("t", assignments=[(0, [2]), (1, [1])])])
    assert made == [(None, [1])]


def test_a_request_that_is_given_up_before_it_is_durable_leaves_nothing(controller, log):
    before, end_offset = controller.view, log.end_offset
    creating = controller.creating_topics([NewTopic("t", 1)])
    for _ in range(3):  # its records are on their way
        next(creating)
    creating.close()
    assert (controller.view, log.end_offset) == (before, end_offset)
    assert [one.error for one in controller.create_topics([NewTopic("t", 1)])] == [None]
    assert controller.allocate_producer_ids()


# Settings and features


def test_settings_of_each_kind_of_owner_have_their_record(controller, log):
    owners = [
        (None, BROKER, ""),
        (1, BROKER, "1"),
        (GroupOwner("g"), GROUP, "g"),
        (ClientMetricsOwner("m"), CLIENT_METRICS, "m"),
    ]
    for owner, kind, name in owners:
        before = dict(controller.view.broker_configs.get(None, {})) if owner is None else {}
        after = {**before, "metrics" if kind == CLIENT_METRICS else "a": "x"}
        records, refusal = written(log, lambda owner=owner, after=after: configure(controller, owner, after))
        assert refusal is None
        key = "metrics" if kind == CLIENT_METRICS else "a"
        assert records == [config(kind, name, key, "x")]


def test_a_broker_is_told_a_setting_that_it_has_again_and_a_topic_is_not(controller, log):
    controller.create_topics([NewTopic("t", 1)])
    for owner in (1, "t"):
        configure(controller, owner, {"a": "1", "b": "2"}, "a", "b")
    act = lambda owner: configure(controller, owner, {"a": "1"}, "a", "c")  # noqa: E731
    records, _ = written(log, lambda: act(1))
    assert records == [
        config(BROKER, "1", "a", "1"),
        config(BROKER, "1", "c", None),
        config(BROKER, "1", "b", None),
    ]
    records, _ = written(log, lambda: act("t"))
    assert records == [config(TOPIC, "t", "b", None)]


def test_a_setting_of_an_owner_twice_in_a_request_shows_the_first(controller, log):
    controller.create_topics([NewTopic("t", 1, configs={"a": "1"})])
    grow = ConfigChange("t", lambda configs: {**configs, "a": configs["a"] + "+"})
    records, _ = written(log, lambda: finish(controller.changing_configs([grow, grow])))
    assert [one.value for one in records] == ["1+", "1++"]
    assert controller.view.topic("t").configs == {"a": "1++"}


def test_another_min_insync_replicas_clears_eligible_leaders_after_all_settings(controller, log):
    controller.create_topics([NewTopic("t", 1)])
    changes = [
        ConfigChange("t", lambda _: {MIN_INSYNC: "2"}, names=[MIN_INSYNC]),
        ConfigChange(None, lambda _: {MIN_INSYNC: "2"}, names=[MIN_INSYNC]),
    ]
    records, _ = written(log, lambda: finish(controller.changing_configs(changes)))
    assert records[2:] == [ClearElrRecord(topic_name="t"), ClearElrRecord(topic_name="")]
    controller.set_features({ELR: 0})
    records, _ = written(log, lambda: configure(controller, "t", {}, MIN_INSYNC))
    assert records == [config(TOPIC, "t", MIN_INSYNC, None)]


def test_settings_of_a_node_that_nobody_knows_are_refused(controller):
    assert configure(controller, 2, {"a": "1"}) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert configure(controller, 1, {"a": "1"}) is None


def test_eligible_leaders_bring_their_setting_before_the_level():
    log = formatted(first_levels(requested={ELR: 0}))
    controller = controller_over(log, defaults=TopicDefaults(min_insync_replicas=2))
    add(controller, broker(1))
    configure(controller, 1, {MIN_INSYNC: "3", "a": "1"}, MIN_INSYNC, "a")
    records, _ = written(log, lambda: controller.set_features({ELR: 1}))
    assert records == [
        config(BROKER, "", MIN_INSYNC, "2"),
        config(BROKER, "1", MIN_INSYNC, None),
        FeatureLevelRecord(name=ELR, feature_level=1),
    ]


def test_levels_that_stay_are_records_too(controller, log):
    levels = {"group.version": 1, "share.version": 1, "kraft.version": 1}
    records, _ = written(log, lambda: controller.set_features(levels))
    assert records == [
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="share.version", feature_level=1),
        NoOpRecord(),
    ]
    assert controller.view.features["kraft.version"] == 1
    with pytest.raises(KafkaError, match="INVALID_UPDATE_VERSION"):
        controller.set_features({"kraft.version": 0})


# Security and quotas


def test_quotas_are_told_by_what_is_other_than_before(controller, log):
    entity = (("client-id", None), ("user", "u"))
    change(controller, lambda draft: draft.set_quotas({entity: {"a": 1.0, "b": 2.0}}))
    records, _ = written(
        log, lambda: change(controller, lambda draft: draft.set_quotas({entity: {"b": 2.0, "c": 3.0}}))
    )
    parts = [
        EntityData(entity_type="client-id", entity_name=None),
        EntityData(entity_type="user", entity_name="u"),
    ]
    assert records == [
        ClientQuotaRecord(entity=parts, key="c", value=3.0, remove=False),
        ClientQuotaRecord(entity=parts, key="a", value=0.0, remove=True),
    ]
    assert controller.view.client_quotas == {entity: {"b": 2.0, "c": 3.0}}


def test_acls_users_and_tokens_are_records(controller, log):
    acl = Acl(ResourceType.TOPIC, "t", PatternType.PREFIXED, "User:u", "*", Operation.READ, Permission.ALLOW)
    token = DelegationToken("id", "User:u", "User:r", ("User:v",), 1, 3, 2)

    def come(draft):
        draft.change_acls({b"1" * 16: acl})
        assert draft.alter_scram_users([], [Upsertion("u", 1, 4096, b"salt", b"p" * 32)]) == {"u": None}
        draft.change_tokens({"id": token})

    def go(draft):
        draft.change_acls({}, [b"1" * 16])
        assert draft.alter_scram_users([Deletion("u", 1)], []) == {"u": None}
        draft.change_tokens({"id": None})

    records, _ = written(log, lambda: change(controller, come))
    assert [type(one) for one in records] == [
        AccessControlEntryRecord,
        UserScramCredentialRecord,
        DelegationTokenRecord,
    ]
    assert controller.view.acls.by_id == {b"1" * 16: acl}
    assert controller.view.scram_users.credential("u", 1).salt == b"salt"
    assert controller.view.delegation_tokens.get("id") == token
    records, _ = written(log, lambda: change(controller, go))
    assert records == [
        RemoveAccessControlEntryRecord(id=b"1" * 16),
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
        RemoveDelegationTokenRecord(token_id="id"),
    ]
    assert not controller.view.acls
    assert not controller.view.scram_users.credentials
    assert not controller.view.delegation_tokens.by_id


# Records of others, producer ids


def test_the_first_offset_of_a_draft_is_that_of_its_first_record(controller, log):
    change(controller, lambda draft: draft.add_records([broker(2), broker(3)]))
    offset = log.end_offset

    def edit(draft):
        assert draft.first_offset == offset
        draft.add_records([NoOpRecord(), broker(4)])

    change(controller, edit)
    assert controller.view.registrations.keys() == {1, 2, 3, 4}
    assert log.end_offset == offset + 2


def test_an_edit_that_refuses_writes_nothing(controller, log):
    def edit(draft):
        draft.add_records([NoOpRecord()])
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        change(controller, edit)
    assert not written(log, lambda: change(controller, lambda draft: None))[0]


def test_producer_ids_are_given_to_brokers_by_their_epoch(controller, log):
    records, given = written(log, lambda: controller.allocate_producer_ids())
    assert records == [ProducerIdsRecord(broker_id=1, broker_epoch=10, next_producer_id=1000)]
    assert given == range(1000)
    assert controller.allocate_producer_ids(1, 10) == range(1000, 2000)
    for stale in ((1, 9), (2, 10)):
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            controller.allocate_producer_ids(*stale)
    assert controller_over(log).allocate_producer_ids() == range(2000, 3000)


def test_producer_ids_wait_for_a_change_that_is_being_written(controller):
    creating = controller.creating_topics([NewTopic("t", 1)])
    next(creating)  # the first partition has a place
    assert controller.allocate_producer_ids() == range(1000)
    next(creating)  # the topic has been judged
    next(creating)  # its records are on their way
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        controller.allocate_producer_ids()
    finish(creating)
    assert controller.view.topic("t")
    assert controller.allocate_producer_ids() == range(1000, 2000)


def test_the_log_of_the_last_producer_id_is_the_end(controller):
    add(controller, ProducerIdsRecord(broker_id=1, next_producer_id=2**63 - 500))
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        controller.allocate_producer_ids()


# The first records


def test_a_new_cluster_begins_as_kafka_4_4_formats_it():
    credential = ScramCredential(b"s", b"k" * 32, b"v" * 32, 4096)
    records = first_records(first_levels(), 2, {("u", 1): credential})
    assert records == [
        BeginTransactionRecord(name="Bootstrap records"),
        FeatureLevelRecord(name="metadata.version", feature_level=33),
        FeatureLevelRecord(name=ELR, feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="share.version", feature_level=2),
        FeatureLevelRecord(name="streams.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k" * 32, server_key=b"v" * 32, iterations=4096
        ),
        config(BROKER, "", MIN_INSYNC, "2"),
        EndTransactionRecord(),
    ]


def test_an_older_release_begins_without_what_it_does_not_know():
    assert first_records(first_levels("3.5"), 1) == [
        FeatureLevelRecord(name="metadata.version", feature_level=11)
    ]
    with pytest.raises(ValueError, match="users need"):
        first_records(first_levels("3.4"), 1, {("u", 1): ScramCredential(b"", b"", b"", 4096)})


def test_the_view_of_a_new_cluster_has_the_levels_and_the_setting():
    view = controller_over(formatted()).view
    assert view.features == first_levels()
    assert view.broker_configs == {None: {MIN_INSYNC: "1"}}
