"""A controller makes changes of all kinds; one that loads its log, or a snapshot of it, has the same view."""

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
from odradek.coordinator.cluster.topics import NewPartitions, NewTopic
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


class Story:
    """A controller, and the log that it writes."""

    def __init__(self):
        levels = first_levels()
        self.log = MemoryMetadataLog(KRaftVersionRecord(version=0, kraft_version=1))
        self.log.append(first_records(levels, 1), levels["metadata.version"])
        brokers = [
            RegisterBrokerRecord(broker_id=one, rack=rack, fenced=False) for one, rack in RACKS.items()
        ]
        self.log.append(brokers, levels["metadata.version"])
        self.starts = 0
        self.controller = self.started()

    def started(self):
        self.starts += 1
        controller = Controller(self.log, node_id=1, new_id=ids_from(self.starts * 10_000), **settings())
        controller.load()
        return controller

    def act(self, act):
        """A refusal as a whole changes nothing."""
        before = self.controller.view
        try:
            act(self.controller)
        except KafkaError:
            assert self.controller.view is before


def assert_same(one, other):
    """But for the number of views, and records that make none, such as those of producer ids."""
    both = [replace(view, version=0, features_epoch=0, acls=None) for view in (one, other)]
    assert both[0] == both[1]
    assert entries(one) == entries(other)


def entries(view):
    return {} if view.acls is None else dict(view.acls.by_id)


class Requests:
    """One request after the other, as something to do with a controller."""

    def __init__(self, seed, story):
        self.random = random.Random(seed)
        self.story = story
        self.numbers = itertools.count(1)

    def next(self):
        makers = [
            *[self.create] * 4,
            *[self.configure] * 5,
            *(self.delete, self.grow, self.set_features, self.set_quotas, self.change_acls),
            *(self.change_users, self.change_tokens, self.allocate),
        ]
        return self.random.choice(makers)()

    @property
    def view(self):
        return self.story.controller.view

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
def test_a_restart_finds_what_there_was_before(seed):
    story = Story()
    requests = Requests(seed, story)
    for _ in range(STEPS):
        story.log.fails = requests.random.random() < 0.05
        story.act(requests.next())
        # It stays when the request has changed nothing.
        story.log.fails = False
        if requests.random.random() < 0.1:
            before = story.controller.view
            if requests.random.random() < 0.5:
                story.log.replace_by_snapshot(snapshot_records(story.controller.state), 33)
            story.controller = story.started()
            assert_same(story.controller.view, before)
