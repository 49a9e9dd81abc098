"""What a connection remembers of its requests is used under its own principal only, and as long as the rules
allow it: for each API whose requests are remembered."""

from dataclasses import dataclass, replace

import pytest

from odradek.apis.prefixes import Ask, Prefix
from odradek.apis.table import declared
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.security.acls import Acl, AclRules, Policy
from odradek.server.security.authorizer import StandardAuthorizer
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.frames import request_frame
from odradek.wire.messages import find
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.produce import ProduceRequest, TopicProduceData
from tests.wired import Wire, from_prefix, served, wired

TOPIC_ID = bytes(range(16))
TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
ALICE, BOB = "User:alice", "User:bob"


def of_group(request_class, **fields):
    return request_class(group_id="g", member_id="m", **fields)


def fetched(**topic):
    topics = [OffsetFetchRequestTopics(partition_indexes=[0], **topic)]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=False
    )


def produced(transactional_id=None, **topic):
    data = [TopicProduceData(partition_data=[], **topic)]
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1, topic_data=data)


def committed(**topic):
    return of_group(OffsetCommitRequest, topics=[OffsetCommitRequestTopic(partitions=[], **topic)])


REQUESTS = {
    "Produce": (produced(name="t"), 12, {TOPIC}),
    "Produce by id": (produced(topic_id=TOPIC_ID), 13, {TOPIC}),
    "transactional Produce": (produced("x", name="t"), 12, {TOPIC, TRANSACTIONAL_ID}),
    "ListOffsets": (
        ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=[])]
        ),
        9,
        {TOPIC},
    ),
    "OffsetCommit": (committed(name="t"), 9, {GROUP, TOPIC}),
    "OffsetCommit by id": (committed(topic_id=TOPIC_ID), 10, {GROUP, TOPIC}),
    "OffsetFetch": (fetched(name="t"), 8, {GROUP, TOPIC}),
    "OffsetFetch by id": (fetched(topic_id=TOPIC_ID), 10, {GROUP, TOPIC}),
    "Heartbeat": (of_group(HeartbeatRequest, generation_id=1), 4, {GROUP}),
    "ConsumerGroupHeartbeat": (
        of_group(
            ConsumerGroupHeartbeatRequest,
            member_epoch=1,
            subscribed_topic_names=["t"],
            server_assignor=None,
            topic_partitions=None,
        ),
        0,
        {GROUP, TOPIC},
    ),
}


class Loop:
    def call_soon(self, callback, *arguments):
        """Nothing here waits for the end of a turn."""


@dataclass
class Scene:
    """A broker with one API, the authorizer, and rules of the test. Its handler notes what is refused."""

    request: object
    version: int

    def __post_init__(self):
        key = type(self.request).api_key
        self.handled = []
        self.view = ClusterView()
        request_class, response_class = find(key)
        prefix = Prefix(range(self.version, self.version + 1), self._learn)
        # All refusals reach the handler here, also those that refuse the whole request.
        needs = tuple(replace(need, is_whole=False) for need in declared(key).needs)
        api = served(request_class, response_class, self._handle, needs=needs, prefix=prefix)
        self.connections = wired({key: api}, Loop(), lambda: 0, lambda: self.view)
        self.connections.dispatcher.authorizer = StandardAuthorizer(Policy(), lambda: self.view, lambda: 0)
        self.frame = request_frame(self.request, self.version, 1, "me")

    def _handle(self, request, context):
        self.handled.append(context.refused)

    def _learn(self, request, context):
        return Ask(lambda: b"\0\0\0\4" + bytes(4))

    def allow(self, principals, kinds):
        names = {TOPIC: "t", GROUP: "g", TRANSACTIONAL_ID: "x"}
        acls = [
            Acl(kind, names[kind], PatternType.LITERAL, one, "*", Operation.ALL, Permission.ALLOW)
            for kind in kinds
            for one in principals
        ]
        rules = (self.view.acls or AclRules()).replaced({bytes([n]): acl for n, acl in enumerate(acls)})
        self.view = ClusterView(acls=rules, topic_names={TOPIC_ID: "t"})

    def client(self, principal):
        wire = Wire(self.connections)
        wire.connection.principal = principal
        return wire

    def ask(self, wire):
        """The kinds of what was refused; "remembered" if no handler was asked."""
        remembered, handled = from_prefix(self.connections), len(self.handled)
        wire.send(self.frame)
        if from_prefix(self.connections) > remembered:
            assert len(self.handled) == handled
            return "remembered"
        assert len(self.handled) == handled + 1
        return {kind for _, kind, _ in self.handled[-1]}


@pytest.mark.parametrize("name", REQUESTS)
def test_two_principals_that_send_the_same_bytes_in_turn_get_what_each_may(name):
    request, version, kinds = REQUESTS[name]
    scene = Scene(request, version)
    scene.allow([ALICE], kinds)
    alice, bob = scene.client(ALICE), scene.client(BOB)
    for _ in range(3):
        assert scene.ask(alice) == "remembered"
        assert scene.ask(bob) == kinds
    scene.allow([BOB], kinds)
    for _ in range(3):
        assert scene.ask(bob) == "remembered"
        assert scene.ask(alice) == kinds


@pytest.mark.parametrize("name", REQUESTS)
def test_each_need_counts_for_what_is_remembered_as_soon_as_a_rule_goes(name):
    request, version, kinds = REQUESTS[name]
    scene = Scene(request, version)
    alice, another = scene.client(ALICE), scene.client(ALICE)
    for kind in kinds:
        scene.allow([ALICE], kinds)
        assert [scene.ask(one) for one in (alice, alice, another)] == ["remembered"] * 3
        scene.allow([ALICE], kinds - {kind})
        assert [scene.ask(one) for one in (alice, another, alice)] == [{kind}] * 3


def test_a_principal_that_changes_is_asked_anew():
    request, version, kinds = REQUESTS["Heartbeat"]
    scene = Scene(request, version)
    scene.allow([ALICE], kinds)
    wire = scene.client(ALICE)
    assert scene.ask(wire) == "remembered"
    wire.connection.principal = BOB
    assert scene.ask(wire) == kinds
