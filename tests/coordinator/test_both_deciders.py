"""The decider over rows and the one over metadata records: same requests, same responses, same views."""

import itertools
import random
from dataclasses import replace

import pytest

from odradek.coordinator.cluster.changes import (
    ClientMetricsOwner,
    ConfigChange,
    GroupOwner,
    TopicDefaults,
)
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.features import first_levels
from odradek.coordinator.cluster.machine import ClusterMachine
from odradek.coordinator.cluster.topics import NewPartitions, NewTopic
from odradek.coordinator.cluster.view import Broker
from odradek.coordinator.controller.bootstrap import first_records
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.coordinator.security.acls import Acl
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import Deletion, Upsertion
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import KRaftVersionRecord, RegisterBrokerRecord
from odradek.wire.work import finish
from tests.coordinator.memory_metadata_log import MemoryMetadataLog
from tests.coordinator.test_cluster import MemoryStore
from tests.tiers import NIGHTLY, seeds

RACKS = {1: "a", 2: "a", 3: "b"}
NAMES = ["a", "b.c", "b_c", "__consumer_offsets", "no good"]
FEATURES = ["group.version", "share.version", "streams.version", "eligible.leader.replicas.version"]
SETTINGS = ["min.insync.replicas", "retention.ms", "bad.setting"]
STEPS = 60


def check_configs(name, configs):
    if "bad.setting" in configs:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: bad.setting is bad")


def settings():
    return {
        "cluster_id": "c",
        "defaults": TopicDefaults(partition_count=2, replication_factor=2),
        "check_topic_configs": check_configs,
        "check_broker_configs": check_configs,
        "check_group_configs": check_configs,
    }


def ids_from(first):
    numbers = itertools.count(first)
    return lambda: next(numbers).to_bytes(16, "big")


class Pair:
    """Both deciders. They draw the same ids."""

    def __init__(self):
        levels = first_levels()
        self.store, self.log = (
            MemoryStore(),
            MemoryMetadataLog(KRaftVersionRecord(version=0, kraft_version=1)),
        )
        self.log.append(first_records(levels, 1), levels["metadata.version"])
        brokers = [
            RegisterBrokerRecord(broker_id=one, rack=rack, fenced=False) for one, rack in RACKS.items()
        ]
        self.log.append(brokers, levels["metadata.version"])
        self.starts = 0
        self.start()
        self.rows.set_features(levels)
        assert_same(self)

    def start(self):
        self.starts += 1
        ids = [ids_from(self.starts * 10_000) for _ in range(2)]
        self.rows = ClusterMachine(self.store, new_topic_id=ids[0], **settings())
        self.records = Controller(self.log, node_id=1, new_id=ids[1], **settings())
        for one in (self.rows, self.records):
            one.load()
        for node_id, rack in RACKS.items():
            self.rows.register_broker(Broker(node_id, {}, rack))

    def both(self, act):
        """The result of each of them, or its refusal as a whole."""
        outcomes = []
        for one in (self.rows, self.records):
            try:
                outcomes.append(act(one))
            except KafkaError as error:
                outcomes.append((error.code, error.message))
        return outcomes


def facts(view):
    """Facts that both have: a node alone has neither directories nor the epochs of partitions."""
    topics = {
        name: replace(
            topic,
            configs=dict(topic.configs),
            partitions=tuple(one._replace(directories=(), partition_epoch=0) for one in topic.partitions),
        )
        for name, topic in view.topics.items()
    }
    return {
        "topics": topics,
        "names": dict(view.topic_names),
        "brokers": {key: dict(one) for key, one in view.broker_configs.items()},
        "groups": {key: dict(one) for key, one in view.group_configs.items()},
        "metrics": {key: dict(one) for key, one in view.client_metrics_configs.items()},
        "features": dict(view.features),
        "quotas": {key: dict(one) for key, one in view.client_quotas.items()},
        "acls": {} if view.acls is None else dict(view.acls.by_id),
        "users": dict(view.scram_users.credentials),
        "tokens": dict(view.delegation_tokens.by_id),
    }


def assert_same(pair):
    assert facts(pair.records.view) == facts(pair.rows.view)


class Requests:
    """One request after the other, as something to do with either decider."""

    def __init__(self, seed, pair):
        self.random = random.Random(seed)
        self.pair = pair
        self.numbers = itertools.count(1)

    def next(self, *, fails):
        """`fails`: it meets a disk that fails. A setting that a broker has already is a record, no row."""
        makers = [
            *[self.create] * 4,
            *([] if fails else [self.configure] * 5),
            *(self.delete, self.grow, self.set_features, self.set_quotas, self.change_acls),
            *(self.change_users, self.change_tokens, self.allocate),
        ]
        return self.random.choice(makers)()

    @property
    def view(self):
        return self.pair.rows.view

    def some(self, values, most=3):
        values = list(values)
        return self.random.sample(values, min(len(values), self.random.randint(1, most)))

    def create(self):
        topics = [self.new_topic(name) for name in self.some(NAMES)]
        validate_only = self.random.random() < 0.2
        return lambda one: results(one.create_topics(topics, validate_only=validate_only))

    def new_topic(self, name):
        configs = {key: str(self.random.randint(1, 3)) for key in SETTINGS if self.random.random() < 0.3}
        if self.random.random() < 0.3:
            replicas = [self.some([1, 2, 3, 9]) for _ in range(self.random.randint(1, 2))]
            return NewTopic(name, assignments=list(enumerate(replicas)), configs=configs)
        counts = self.random.choice([-1, 0, 1, 5]), self.random.choice([-1, 1, 2, 3, 4])
        return NewTopic(name, *counts, configs=configs)

    def delete(self):
        names = self.some(NAMES, 2)
        return lambda one: results(one.delete_topics(names))

    def grow(self):
        growths = [NewPartitions(name, self.random.randint(1, 8)) for name in self.some(NAMES, 2)]
        return lambda one: results(one.create_partitions(growths))

    def configure(self):
        owners = ["a", "b.c", "", 1, 2, None, GroupOwner("g"), GroupOwner(""), ClientMetricsOwner("m")]
        changes = [self.config_change(self.random.choice(owners)) for _ in range(self.random.randint(1, 3))]
        return lambda one: refusals(finish(one.changing_configs(changes)))

    def config_change(self, owner):
        names = ["interval.ms"] if isinstance(owner, ClientMetricsOwner) else SETTINGS
        wanted = {
            name: self.random.choice([None, "100", "200"]) for name in names if self.random.random() < 0.5
        }

        def change(before):
            after = {**before, **wanted}
            return {name: value for name, value in after.items() if value is not None}

        return ConfigChange(owner, change, names=list(wanted))

    def set_features(self):
        levels = {name: self.random.randint(0, 1) for name in self.some(FEATURES, 2)}
        return lambda one: one.set_features(levels)

    def set_quotas(self):
        entity = (("client-id", self.random.choice([None, "c"])), ("user", "u"))
        values = {name: float(self.random.randint(1, 3)) for name in ("x", "y") if self.random.random() < 0.5}
        if values == self.view.client_quotas.get(entity, {}):
            values = {"z": 1.0}
        return edited(lambda draft: draft.set_quotas({entity: values}))

    def change_acls(self):
        known = {} if self.view.acls is None else self.view.acls.by_id
        if known and self.random.random() < 0.5:
            removed = self.some(known)
            return edited(lambda draft: draft.change_acls({}, removed))
        number = next(self.numbers)
        acl = Acl(
            ResourceType.TOPIC,
            f"t{number}",
            self.random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            "User:u",
            "*",
            Operation.READ,
            self.random.choice([Permission.ALLOW, Permission.DENY]),
        )
        return edited(lambda draft: draft.change_acls({number.to_bytes(16, "big"): acl}))

    def change_users(self):
        salt = self.random.randbytes(8)
        deletions = [Deletion(user, 1) for user in self.some("uvw", 2)]
        upsertions = [
            Upsertion(user, 2, self.random.choice([1, 4096]), salt, b"p") for user in self.some("uvw", 2)
        ]
        if self.random.random() < 0.5:
            deletions = []
        return edited(lambda draft: refusals(draft.alter_scram_users(deletions, upsertions).values()))

    def change_tokens(self):
        known = self.view.delegation_tokens.by_id
        if known and self.random.random() < 0.5:
            changes = dict.fromkeys(self.some(known))
        else:
            number = next(self.numbers)
            token = DelegationToken(
                f"id{number}", "User:u", "User:v", ("User:w",), number, number + 9, number
            )
            changes = {token.token_id: token}
        return edited(lambda draft: draft.change_tokens(changes))

    def allocate(self):
        return lambda one: one.allocate_producer_ids()


def edited(edit):
    return lambda one: finish(one.changing(at_once(edit)))


def results(found):
    return refusals(one.error for one in found)


def refusals(errors):
    return [None if error is None else (error.code, error.message) for error in errors]


@pytest.mark.parametrize("seed", seeds(400 if NIGHTLY else 40, fast=10))
def test_both_have_the_same_responses_and_views(seed):
    pair = Pair()
    requests = Requests(seed, pair)
    for _ in range(STEPS):
        pair.store.fails = pair.log.fails = fails = requests.random.random() < 0.05
        rows, records = pair.both(requests.next(fails=fails))
        assert records == rows
        # They stay when the request has changed nothing.
        pair.store.fails = pair.log.fails = False
        assert_same(pair)
        if requests.random.random() < 0.1:
            if requests.random.random() < 0.5:
                pair.log.replace_by_snapshot(snapshot_records(pair.records.state), 33)
            pair.start()
            assert_same(pair)
