"""The image of a cluster's metadata: rules of single records, and views that are the same by every way."""

from contextlib import suppress
from dataclasses import replace

import pytest

from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import LOST, MIGRATING, UNASSIGNED, ClusterView, Endpoint
from odradek.coordinator.security.acls import Acl, AclFilter, identities_of
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.metadata_records import (
    CONTROL_RECORDS,
    RECORDS,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from odradek.wire.work import finish
from tests.coordinator.metadata_histories import History, acl_record, quota_record
from tests.tiers import NIGHTLY, seeds

HERE = 1
SEEDS = 300 if NIGHTLY else 25
TOPIC_ID = b"t" * 16
DISK, OTHER_DISK = b"d" * 16, b"e" * 16


@pytest.fixture
def image():
    return MetadataImage(HERE, "cluster")


def played(image, *records):
    """The view after these records, and what has changed."""
    for record in records:
        image.replay(record)
    image.end_batch(image.offset + len(records))
    published = image.publish()
    return (image.view, None) if published is None else published


def topic(name="t", topic_id=TOPIC_ID):
    return TopicRecord(name=name, topic_id=topic_id)


def partition(index=0, replicas=(1, 2), topic_id=TOPIC_ID, **fields):
    fields = {"isr": list(replicas), "leader": replicas[0], "leader_epoch": 0, "partition_epoch": 0, **fields}
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=list(replicas), **fields)


def change(index=0, topic_id=TOPIC_ID, **fields):
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields)


def broker(node_id, epoch=10, fenced=False, **fields):
    end_points = [BrokerEndpoint(name="OUT", host=f"h{node_id}", port=9092, security_protocol=3)]
    return RegisterBrokerRecord(
        broker_id=node_id, broker_epoch=epoch, end_points=end_points, fenced=fenced, **fields
    )


def broker_change(node_id, epoch=10, **fields):
    return BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, **fields)


def config(kind, owner, name, value):
    return ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value)


# Partitions


def test_a_leader_that_is_named_adds_to_its_epoch_even_if_it_leads_already(image):
    view, _ = played(image, topic(), partition(), change(leader=1))
    assert view.partition("t", 0)[1:3] == (1, 1)
    view, _ = played(image, change(isr=[1]))
    assert (view.partition("t", 0).leader_epoch, view.partition("t", 0).isr) == (1, (1,))
    view, _ = played(image, change(leader=-1), change(leader=2))
    assert view.partition("t", 0)[1:3] == (2, 3)


def test_every_change_adds_to_the_epoch_of_the_partition(image):
    view, _ = played(
        image, topic(), partition(partition_epoch=7), change(isr=[1]), change(), change(leader=2)
    )
    assert view.partition("t", 0).partition_epoch == 10


def test_replicas_keep_their_directories_when_a_reassignment_does_not_name_any(image):
    played(image, topic(), partition(directories=[DISK, OTHER_DISK]))
    view, _ = played(image, change(replicas=[3, 2], adding_replicas=[3], removing_replicas=[1]))
    now = view.partition("t", 0)
    assert (now.replicas, now.directories) == ((3, 2), (MIGRATING, OTHER_DISK))
    assert (now.adding, now.removing) == ((3,), (1,))
    assert [now.directory_of(node_id) for node_id in (1, 2, 3)] == [MIGRATING, OTHER_DISK, MIGRATING]
    view, _ = played(image, change(directories=[DISK, LOST], adding_replicas=[], removing_replicas=[]))
    now = view.partition("t", 0)
    assert (now.directories, now.adding, now.removing) == ((DISK, LOST), (), ())


def test_eligible_replicas_come_and_are_cleared_where_there_are_any(image):
    other = b"o" * 16
    played(image, topic(), partition(0), partition(1), topic("o", other), partition(0, topic_id=other))
    elr = {"eligible_leader_replicas": [2], "last_known_elr": [1], "leader_recovery_state": 1}
    view, _ = played(image, change(1, **elr), change(0, other, **elr))
    now = view.partition("t", 1)
    assert (now.elr, now.last_known_elr, now.leader_recovery_state) == ((2,), (1,), 1)
    view, changed = played(image, ClearElrRecord(topic_name="t"))
    assert [(one.topic.name, one.after.index) for one in changed.changed] == [("t", 1)]
    now = view.partition("t", 1)
    assert (now.elr, now.last_known_elr, now.partition_epoch, now.leader_recovery_state) == ((), (), 2, 1)
    view, changed = played(image, ClearElrRecord(topic_name=""))
    assert [(one.topic.name, one.after.partition_epoch) for one in changed.changed] == [("o", 2)]


@pytest.mark.parametrize(
    ("directory", "offline"),
    [(LOST, (2,)), (MIGRATING, ()), (UNASSIGNED, ()), (DISK, ()), (OTHER_DISK, (2,))],
)
def test_a_replica_in_a_directory_that_its_broker_does_not_have_is_offline(image, directory, offline):
    records = (topic(), partition(directories=[DISK, directory]), broker(1, log_dirs=[DISK]))
    view, _ = played(image, *records, broker(2, log_dirs=[DISK]))
    assert view.partition("t", 0).offline == offline


def test_a_lost_directory_takes_its_replicas_offline_without_a_change_of_partitions(image):
    played(image, topic(), partition(directories=[DISK, DISK]), topic("o", b"o" * 16))
    played(image, broker(1, log_dirs=[DISK]), broker(2, log_dirs=[DISK, OTHER_DISK]))
    view, changed = played(image, broker_change(2, log_dirs=[OTHER_DISK]))
    assert view.partition("t", 0).offline == (2,)
    assert (list(changed.changed), changed.brokers) == ([], [2])
    view, _ = played(image, UnregisterBrokerRecord(broker_id=2, broker_epoch=10))
    assert view.partition("t", 0).offline == ()
    assert 2 not in view.brokers


def test_a_broker_whose_directories_are_not_known_has_all_replicas_online(image):
    view, _ = played(image, topic(), partition(directories=[DISK, DISK]), broker(1), broker(2))
    assert view.partition("t", 0).offline == ()


# Brokers


def test_fenced_brokers_are_registered_and_not_named_to_clients(image):
    view, changed = played(image, broker(1, fenced=True, rack="r"), broker(2))
    assert (view.brokers.keys(), view.registrations.keys()) == ({2}, {1, 2})
    assert view.controller_id == 2
    assert sorted(changed.brokers) == [1, 2]
    view, changed = played(image, broker_change(1, fenced=-1))
    assert (view.brokers.keys(), view.controller_id, changed.brokers) == ({1, 2}, 1, [1])
    one = view.brokers[1]
    assert one.endpoints == {"OUT": Endpoint("h1", 9092, "SASL_SSL")}
    assert (one.rack, one.epoch, one.is_fenced) == ("r", 10, False)
    view, _ = played(image, broker_change(1, in_controlled_shutdown=1), broker_change(1, fenced=1))
    assert (view.registrations[1].in_controlled_shutdown, view.registrations[1].is_fenced) == (True, True)
    view, _ = played(image, UnfenceBrokerRecord(id=1, epoch=10))
    assert view.brokers[1].in_controlled_shutdown
    view, _ = played(image, UnregisterBrokerRecord(broker_id=2, broker_epoch=10), broker(1, epoch=20))
    assert (view.brokers.keys(), view.brokers[1].epoch) == ({1}, 20)
    assert not view.brokers[1].in_controlled_shutdown


def test_directories_of_a_broker_change_when_they_are_named(image):
    view, _ = played(image, broker(1, log_dirs=[OTHER_DISK, DISK]))
    assert (view.brokers[1].directories, view.brokers[1].cordoned_directories) == ((DISK, OTHER_DISK), None)
    view, _ = played(image, broker_change(1, cordoned_log_dirs=[DISK]))
    assert view.brokers[1].directories == (DISK, OTHER_DISK)
    assert view.brokers[1].cordoned_directories == (DISK,)
    view, _ = played(image, broker_change(1, log_dirs=[DISK], cordoned_log_dirs=[]))
    assert (view.brokers[1].directories, view.brokers[1].cordoned_directories) == ((DISK,), ())


# Topics, settings, features


def test_a_removed_topic_takes_its_settings_along(image):
    view, _ = played(image, topic(), config(2, "t", "retention.ms", "5"), partition())
    assert view.topics["t"].configs == {"retention.ms": "5"}
    view, changed = played(image, RemoveTopicRecord(topic_id=TOPIC_ID), topic("t", b"u" * 16))
    assert [one.topic_id for one in changed.deleted] == [TOPIC_ID]
    assert view.topics["t"].topic_id == b"u" * 16
    assert view.topics["t"].configs == {}
    assert view.topic_names == {b"u" * 16: "t"}
    assert (changed.configured, changed.removed) == ([], [])


def test_settings_have_their_owners(image):
    owners = [(2, "t"), (4, ""), (4, "1"), (16, "m"), (32, "g")]
    view, changed = played(image, topic(), *(config(*owner, "a", "1") for owner in owners))
    assert view.topics["t"].configs == {"a": "1"}
    assert view.broker_configs == {None: {"a": "1"}, 1: {"a": "1"}}
    assert (view.group_configs, view.client_metrics_configs) == ({"g": {"a": "1"}}, {"m": {"a": "1"}})
    assert (set(changed.brokers_configured), changed.groups_configured) == ({None, 1}, ["g"])
    assert list(changed.configured) == []
    view, changed = played(image, *(config(*owner, "a", None) for owner in owners))
    assert view.broker_configs == view.group_configs == view.client_metrics_configs == {}
    assert [one.configs for one in changed.configured] == [{}]
    assert played(image, config(4, "", "b", None), config(2, "t", "b", None))[1] is None


def test_features_have_levels_and_the_epoch_of_the_log(image):
    levels = [FeatureLevelRecord(name="group.version", feature_level=1), KRaftVersionRecord(kraft_version=1)]
    view, changed = played(image, *levels)
    assert view.features == {"group.version": 1, "kraft.version": 1}
    assert (set(changed.features), view.features_epoch) == ({"group.version", "kraft.version"}, 1)
    view, changed = played(image, FeatureLevelRecord(name="group.version", feature_level=0))
    assert (view.features, changed.features) == ({"kraft.version": 1}, ["group.version"])


def test_acls_are_kept_and_the_view_says_whether_there_are_any(image):
    view, _ = played(image, acl_record(1), acl_record(2))
    assert view.has_acls
    assert sorted(image.kept.access_control_entries) == [number.to_bytes(16, "big") for number in (1, 2)]
    view, _ = played(image, RemoveAccessControlEntryRecord(id=acl_record(1).id))
    assert view.has_acls
    view, _ = played(image, RemoveAccessControlEntryRecord(id=acl_record(2).id))
    assert not view.has_acls


def test_delegation_tokens_are_in_the_view(image):
    def record(token_id, expiry_ms):
        return DelegationTokenRecord(
            owner="User:ann",
            requester="User:bob",
            renewers=["User:carl"],
            issue_timestamp=1,
            max_timestamp=9,
            expiration_timestamp=expiry_ms,
            token_id=token_id,
        )

    view, changed = played(image, record("t", 5), record("u", 5))
    assert changed is not None
    assert not view.has_acls
    assert view.delegation_tokens.get("t") == DelegationToken(
        "t", "User:ann", "User:bob", ("User:carl",), 1, 9, 5
    )
    after, _ = played(image, record("t", 7), RemoveDelegationTokenRecord(token_id="u"))
    assert [(one.token_id, one.expiry_ms) for one in after.delegation_tokens.by_id.values()] == [("t", 7)]
    assert len(view.delegation_tokens.by_id) == 2
    assert played(image, NoOpRecord())[0].delegation_tokens is after.delegation_tokens
    image.begin_snapshot()
    assert not played(image)[0].delegation_tokens.by_id


def test_quotas_are_in_the_view_by_entity(image):
    user, client = ("user", "u"), ("client-id", None)
    view, changed = played(
        image, quota_record([user, client], 5.0, False), quota_record([("ip", None)], 7.0, False)
    )
    assert view.client_quotas == {
        (client, user): {"producer_byte_rate": 5},
        (("ip", None),): {"producer_byte_rate": 7},
    }
    assert changed is not None
    before = view.client_quotas
    assert played(image, quota_record([client, user], 5.0, False))[1] is None
    assert played(image, NoOpRecord())[0].client_quotas is before
    view, _ = played(image, quota_record([user, client], 5.0, True), quota_record([user], 5.0, True))
    assert view.client_quotas == {(("ip", None),): {"producer_byte_rate": 7}}
    # A view stays as it was.
    assert len(before) == 2
    image.begin_snapshot()
    assert played(image)[0].client_quotas == {}


def names(view):
    return sorted(acl.name for acl in view.acls.by_id.values())


def test_acls_are_the_rules_of_a_view_and_change_with_it(image):
    view, _ = played(image, topic(), partition())
    assert view.acls is None
    one, _ = played(image, acl_record(1), acl_record(2))
    assert names(one) == ["t1", "t2"]
    assert one.acls.by_id[acl_record(1).id] == Acl(
        ResourceType.TOPIC, "t1", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW
    )
    two, _ = played(image, partition(1))
    assert two.acls is one.acls
    three, _ = played(image, RemoveAccessControlEntryRecord(id=acl_record(1).id), acl_record(3))
    assert (names(three), names(one)) == (["t2", "t3"], ["t1", "t2"])
    assert three.acls.version > two.acls.version
    image.begin_snapshot()
    four, _ = played(image, acl_record(3), acl_record(4))
    assert names(four) == ["t3", "t4"]
    assert four.acls.version > three.acls.version
    image.begin_snapshot()
    five, _ = played(image)
    assert (names(five), five.has_acls) == ([], False)


def test_rules_of_newer_controllers_are_kept_apart_and_allow_nothing(image):
    numbers = [{"operation": 60}, {"operation": 61}, {"resource_type": 60}]
    records = [replace(acl_record(number), **fields) for number, fields in enumerate(numbers)]
    view, _ = played(image, *records)
    assert len(view.acls) == 3
    who = identities_of("User:u", "127.0.0.1")
    assert view.acls.decide(who, Operation.READ, ResourceType.TOPIC, "t0") is False
    wanted = AclFilter(ResourceType.ANY, "t0", PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
    assert [acl.operation for acl in finish(view.acls.finding(wanted))] == [60]


@pytest.mark.parametrize("fields", [{"permission_type": 0}, {"permission_type": 9}, {"pattern_type": 9}])
def test_a_rule_that_nobody_can_judge_is_not_taken_for_none(image, fields):
    with pytest.raises(InconsistentMetadata):
        played(image, replace(acl_record(1), **fields))


def test_records_that_concern_no_view_make_none(image):
    before = image.view
    ids = ProducerIdsRecord(next_producer_id=2000)
    assert played(image, NoOpRecord(), LeaderChangeMessage(leader_id=3), ids) == (before, None)
    assert (image.offset, image.next_producer_id, image.view) == (2, 2000, before)


# Transactions and batches


def test_a_transaction_counts_as_a_whole_and_only_then_moves_the_offset(image):
    played(image, NoOpRecord())
    assert played(image, BeginTransactionRecord(), topic()) == (image.view, None)
    assert (image.is_in_transaction, image.offset, image.view.topics) == (True, 0, {})
    image.replay(LeaderChangeMessage(leader_id=3))
    image.replay(partition())
    image.end_batch(4)
    assert image.offset == 0
    view, _ = played(image, EndTransactionRecord(), config(2, "t", "a", "1"))
    assert (view.partition("t", 0).leader, view.topics["t"].configs) == (1, {"a": "1"})
    assert not image.is_in_transaction


def test_an_aborted_transaction_never_was(image):
    view, changed = played(image, BeginTransactionRecord(), topic(), AbortTransactionRecord(reason="why"))
    assert (view.topics, changed, image.offset) == ({}, None, 2)
    played(image, topic(), partition())


def test_batches_are_joined_into_one_view(image):
    for index in range(5):
        image.replay(topic(f"t{index}", bytes([index]) * 16))
        image.end_batch(index)
    view, _ = image.publish()
    assert (view.version, len(view.topics), view.features_epoch) == (1, 5, 4)
    assert image.publish() is None


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([partition()], "there is no such topic"),
        ([topic(), change()], "t has no such partition"),
        ([topic(), topic(topic_id=b"x" * 16)], "there is a topic with this name"),
        ([topic(), partition(directories=[DISK])], "not as many directories"),
        ([RemoveTopicRecord(topic_id=TOPIC_ID)], "there is no such topic"),
        ([ClearElrRecord(topic_name="t")], "there is no such topic"),
        ([topic(), partition(1)], "t has no partition 0, but later ones"),
        ([broker_change(3)], "broker 3 is not registered"),
        ([broker(3), broker_change(3, epoch=11)], "broker 3 has the epoch 10"),
        ([UnregisterBrokerRecord(broker_id=3)], "broker 3 is not registered"),
        ([EndTransactionRecord()], "no transaction is open"),
        ([BeginTransactionRecord(), BeginTransactionRecord()], "a transaction is open already"),
    ],
)
def test_records_that_do_not_fit_are_named(image, records, words):
    with pytest.raises(InconsistentMetadata, match=words):
        played(image, *records)


@pytest.mark.parametrize("cls", [*RECORDS.values(), *CONTROL_RECORDS.values()], ids=lambda cls: cls.__name__)
def test_every_record_is_taken_in_or_does_not_fit(image, cls):
    with suppress(InconsistentMetadata):
        played(image, cls())


def test_a_security_protocol_that_is_not_known_is_named(image):
    record = broker(1)
    record.end_points[0].security_protocol = 4
    with pytest.raises(InconsistentMetadata, match="OUT has the security protocol 4"):
        played(image, record)


# What a subscriber learns


def test_a_node_learns_of_partitions_that_it_gets_and_loses(image):
    view, changed = played(image, topic(), partition(0, (1, 2)), partition(1, (2, 3)))
    assert [(one.name, part.index) for one, part in changed.created] == [("t", 0)]
    assert [(one.before, one.after.index) for one in changed.changed] == [(None, 0), (None, 1)]
    view, changed = played(image, change(1, replicas=[2, 1]), change(0, replicas=[2]))
    assert [part.index for _, part in changed.created] == [1]
    assert [(one.name, part.index, part.replicas) for one, part in changed.removed] == [("t", 0, (2,))]
    assert changed.created[0][0] is changed.changed[0].topic is view.topics["t"]
    view, changed = played(image, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (len(changed.deleted), list(changed.removed), list(changed.changed)) == (1, [], [])
    assert changed.deleted[0].partitions[1].replicas == (2, 1)


def test_a_view_shares_what_did_not_change(image):
    count = 10_000
    other = b"o" * 16
    played(image, topic(), *(partition(index) for index in range(count)), topic("o", other), broker(1))
    before = image.view
    view, changed = played(image, change(77, leader=2))
    assert [one.after.index for one in changed.changed] == [77]
    assert [
        one
        for one in range(count)
        if view.topics["t"].partitions[one] is not before.topics["t"].partitions[one]
    ] == [77]
    assert view.topics["o"] is before.topics["o"]
    assert view.brokers is before.brokers
    assert view.topic_names is before.topic_names
    assert before.partition("t", 77).leader == 1


# Snapshots


def comparable(view):
    return replace(view, version=0, features_epoch=0)


def brute_difference(before, after):
    """The difference between two views, found by looking at everything."""
    old = {one.topic_id: one for one in before.topics.values()}
    new = {one.topic_id: one for one in after.topics.values()}
    changed, created, removed = set(), set(), set()
    for topic_id, one in new.items():
        was = dict(enumerate(old[topic_id].partitions)) if topic_id in old else {}
        for part in one.partitions:
            last = was.get(part.index)
            if last is None or last._replace(offline=()) != part._replace(offline=()):
                changed.add((topic_id, last, part))
            had, has = last is not None and HERE in last.replicas, HERE in part.replicas
            if has and not had:
                created.add((topic_id, part))
            if had and not has:
                removed.add((topic_id, part))
    return {
        "created": created,
        "removed": removed,
        "changed": changed,
        "deleted": {one for one in old if one not in new},
        "configured": {one for one in new if one in old and old[one].configs != new[one].configs},
        "brokers_configured": other_keys(before.broker_configs, after.broker_configs),
        "groups_configured": other_keys(before.group_configs, after.group_configs),
        "brokers": other_keys(before.registrations, after.registrations),
        "features": other_keys(before.features, after.features),
    }


def other_keys(before, after):
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def told(changed):
    found = {
        "created": [(one.topic_id, part) for one, part in changed.created],
        "removed": [(one.topic_id, part) for one, part in changed.removed],
        "changed": [(one.topic.topic_id, one.before, one.after) for one in changed.changed],
        "deleted": [one.topic_id for one in changed.deleted],
        "configured": [one.topic_id for one in changed.configured],
        **{
            name: list(getattr(changed, name))
            for name in ("brokers_configured", "groups_configured", "brokers", "features")
        },
    }
    assert all(len(set(found[name])) == len(found[name]) for name in found), "something is told twice"
    return {name: set(values) for name, values in found.items()}


def load_snapshot(image, history, offset):
    image.begin_snapshot()
    for record in history.snapshot():
        image.replay(record)
    image.end_batch(offset)
    return image.publish()


@pytest.mark.parametrize("seed", seeds(SEEDS, fast=5))
def test_log_and_snapshot_give_the_same_view_and_changes_are_the_exact_difference(seed):
    history = History(seed)
    by_log, by_snapshots = MetadataImage(HERE, "c"), MetadataImage(HERE, "c")
    offset = -1
    for _ in range(60):
        before = by_log.view
        for _ in range(history.random.randrange(1, 4)):
            records = history.batch()
            for record in records:
                by_log.replay(record)
            offset += len(records)
            by_log.end_batch(offset)
        published = by_log.publish()
        if published is None:
            assert by_log.view is before
        else:
            assert published.view is by_log.view
            assert published.view.features_epoch == offset
            assert told(published.change) == brute_difference(before, by_log.view)
        if history.random.random() < 0.3:
            before = by_snapshots.view
            published = load_snapshot(by_snapshots, history, offset)
            assert comparable(by_snapshots.view) == comparable(by_log.view)
            if published is None:
                assert comparable(before) == comparable(by_log.view)
            else:
                assert told(published.change) == brute_difference(before, by_snapshots.view)
            fresh = MetadataImage(HERE, "c")
            load_snapshot(fresh, history, offset)
            assert comparable(fresh.view) == comparable(by_log.view)
            for one in (fresh, by_snapshots):
                assert one.kept.quotas == by_log.kept.quotas
                assert one.kept.scram_users == by_log.kept.scram_users
                assert (one.next_producer_id, one.offset) == (by_log.next_producer_id, by_log.offset)
        check_view(by_log.view)


def check_view(view: ClusterView):
    """What holds of every view."""
    assert view.topic_names == {one.topic_id: name for name, one in view.topics.items()}
    assert view.brokers == {key: one for key, one in view.registrations.items() if not one.is_fenced}
    for one in view.topics.values():
        assert [part.index for part in one.partitions] == list(range(len(one.partitions)))


def test_a_snapshot_that_changes_nothing_is_no_new_view_and_shares_all(image):
    records = [topic(), partition(0), partition(1), broker(1), config(2, "t", "a", "1"), acl_record(1)]
    view, _ = played(image, *records)
    image.begin_snapshot()
    assert played(image, *records) == (view, None)
    image.begin_snapshot()
    records[2] = partition(1, leader=2)
    again, changed = played(image, *records)
    assert again.topics["t"].partitions[0] is view.topics["t"].partitions[0]
    assert again.topics["t"].configs is view.topics["t"].configs
    assert [one.after.index for one in changed.changed] == [1]
    image.begin_snapshot()
    again, changed = played(image)
    assert (again.topics, again.registrations, again.brokers, again.topic_names) == ({}, {}, {}, {})
    assert (again.controller_id, again.has_acls) == (-1, False)
    assert [one.name for one in changed.deleted] == ["t"]
