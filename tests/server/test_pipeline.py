"""The pipeline of requests: what it reads in place, whom it asks, what it counts, whom it holds back."""

import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.apis import access
from odradek.apis.access import Need
from odradek.apis.api import Waiting
from odradek.apis.prefixes import Ask, Prefix, Submit
from odradek.apis.turn import COMMITTED
from odradek.coordinator.security.client_meters import QuotaMeters
from odradek.embedding.embedded import Broker
from odradek.server.network._pipeline import monotonic_ms
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame, response_parts
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.prefixes import item_fields, prefix_layout
from tests.raw_client import RawClient
from tests.wired import Wire, from_prefix, served, wired

PRODUCE, HEARTBEAT, OFFSET_COMMIT = 0, 12, 8
UNTIL = ("topics", "partitions")


class Loop:
    """Callbacks wait until they are run; timers until their time has come."""

    def __init__(self):
        self.now_ms = 1_000
        self.soon, self.later = [], []

    def call_soon(self, callback, *arguments):
        self.soon.append(lambda: callback(*arguments))

    def after(self, delay_ms, callback):
        timer = self.now_ms + delay_ms, callback
        self.later.append(timer)
        return Handle(lambda: self.later.remove(timer))

    def run(self, until_ms):
        self.now_ms = until_ms
        for time_ms, callback in list(self.later):
            if time_ms <= until_ms:
                self.later.remove((time_ms, callback))
                callback()
        while self.soon:
            self.soon.pop(0)()


class Handle(NamedTuple):
    cancel: Callable[[], None]


class Item(NamedTuple):
    first: object
    second: object
    third: object
    fourth: object


def beat(group="g", **fields):
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m", **fields)


class Stage:
    """Heartbeat as the only API. Its handler answers the error code that the group is named after."""

    def __init__(self, needs=(), remembered_versions=None):
        self.loop = Loop()
        self.contexts = []
        prefix = None if remembered_versions is None else Prefix(remembered_versions, self.learn)
        api = served(HeartbeatRequest, HeartbeatResponse, self.handle, needs=needs, prefix=prefix)
        self.connections = wired({HEARTBEAT: api}, self.loop, lambda: self.loop.now_ms)
        self.dispatcher = self.connections.dispatcher
        self.dispatcher.timers = self.loop

    def handle(self, request, context):
        self.contexts.append(context)
        return HeartbeatResponse(error_code=int(request.group_id) if request.group_id.isdigit() else 0)

    def learn(self, request, context):
        frame = b"".join(response_parts(HeartbeatResponse(error_code=0), context.api_version, 0))
        return Ask(lambda: frame)


# What is read in place


def texts(size_max):
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=size_max)


@given(
    version=st.sampled_from(range(2, 11)),
    partitions=st.lists(
        st.tuples(st.integers(-5, 1 << 20), st.integers(-(1 << 62), 1 << 62), st.none() | texts(300)),
        min_size=1,
        max_size=100,
    ),
    group=texts(200),
    member=texts(200),
    instance=st.none() | texts(10),
    client_id=st.none() | texts(30),
)
def test_items_that_are_read_in_place_are_those_that_the_decoder_reads(
    version, partitions, group, member, instance, client_id
):
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=3,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=bytes(range(16)),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset, metadata in partitions
                ],
            )
        ],
    )
    if version >= 7:
        request.group_instance_id = instance
    decoded = decode_message(OffsetCommitRequest, version, encode_message(request, version))
    fields = item_fields(OffsetCommitRequest, version, UNTIL)
    sample = Item(*["unread"] * 4)
    places = tuple(reversed(range(len(fields))))
    expected = []
    for one in decoded.topics[0].partitions:
        values = [getattr(one, name) for name in fields]
        expected.append(
            Item(*["" if value is None else value for value in reversed(values)], *sample[len(fields) :])
        )
    learnt, read = [], []

    def learn(learnt_request, context):
        learnt.append((learnt_request, context.client_id))
        return Submit(lambda items, _: read.append(items) or True, lambda *_: b"", sample, places)

    prefix = Prefix(range(2, 11), learn, UNTIL)
    api = served(OffsetCommitRequest, OffsetCommitResponse, None, prefix=prefix)
    loop = Loop()
    for _ in range(2):
        connections = wired({OFFSET_COMMIT: api}, loop, lambda: 0)
        Wire(connections).send(request_frame(request, version, 1, client_id))
    assert read == [expected, expected]
    assert learnt == [(decoded, client_id)] * 2


@pytest.mark.parametrize("until", [("topics",), ("group_id",), ("topics", "name")])
def test_what_cannot_be_read_in_place_has_no_layout(until):
    request = {"topics": MetadataRequest}.get(until[0] if len(until) == 1 else "", OffsetCommitRequest)
    with pytest.raises(ValueError, match=r"no rest|not the last field|no int32"):
        prefix_layout(request, 5, until)


def test_a_layout_skips_neighbours_of_fixed_width_at_once():
    until = ("topic_data", "partition_data", "records")
    layouts = [prefix_layout(ProduceRequest, version, until) for version in (3, 9, 13)]
    assert [layout.tags_after for layout in layouts] == [0, 3, 3]
    assert [len(layout.steps) // 2 for layout in layouts] == [6, 7, 7]


# Who asks, and may they


class Recording:
    """Refuses what it is told to, and notes what it was asked."""

    def __init__(self, *refused):
        self.asked, self.told = [], frozenset(refused)

    def refused(self, connection, needs, request):
        return self.hidden(connection, access.resources(needs, request))

    def hidden(self, connection, resources):
        wanted = [(*kind, name) for kind, names in resources.items() for name in names]
        self.asked.append((connection.principal, connection.peer_host, wanted))
        return self.told & frozenset(wanted)


READ_GROUP = (Need(Operation.READ, ResourceType.GROUP, lambda request: (request.group_id,)),)


def test_the_authorizer_is_asked_once_for_each_request_before_its_handler():
    stage = Stage(READ_GROUP)
    needed = (Operation.READ, ResourceType.GROUP, "secret")
    stage.dispatcher.authorizer = authorizer = Recording(needed)
    wire = Wire(stage.connections, "192.0.2.9")
    for group in ("open", "secret"):
        wire.send(request_frame(beat(group), 4, 1, "me"))
    asked = [[(Operation.READ, ResourceType.GROUP, group)] for group in ("open", "secret")]
    assert authorizer.asked == [("User:ANONYMOUS", "192.0.2.9", one) for one in asked]
    assert [context.refused for context in stage.contexts] == [frozenset(), {needed}]


def test_a_refused_request_is_not_remembered_and_each_connection_is_asked_for_itself():
    stage = Stage(READ_GROUP, range(5))
    needed = (Operation.READ, ResourceType.GROUP, "g")
    stage.dispatcher.authorizer = authorizer = Recording(needed)
    wires = [Wire(stage.connections) for _ in range(2)]
    frame = request_frame(beat(), 4, 1, "me")
    for _ in range(3):
        wires[0].send(frame)
    assert (len(authorizer.asked), len(stage.contexts), from_prefix(stage.connections)) == (3, 3, 0)
    authorizer.told = frozenset()
    for _ in range(3):
        wires[0].send(frame)
    assert (len(authorizer.asked), len(stage.contexts), from_prefix(stage.connections)) == (4, 3, 3)
    wires[1].send(frame)  # the same bytes, and another client
    assert (len(authorizer.asked), len(stage.contexts), from_prefix(stage.connections)) == (5, 3, 4)
    stage.dispatcher.forget_prefixes()  # as when rules change
    wires[0].send(frame)
    assert (len(authorizer.asked), from_prefix(stage.connections)) == (6, 5)


def test_what_one_principal_has_learnt_serves_no_other_one_of_the_same_connection():
    stage = Stage(READ_GROUP, range(5))
    stage.dispatcher.authorizer = authorizer = Recording()
    wire = Wire(stage.connections)
    frame = request_frame(beat(), 4, 1, "me")
    for _ in range(2):
        wire.send(frame)
    assert (len(authorizer.asked), from_prefix(stage.connections)) == (1, 2)
    authorizer.told = frozenset({(Operation.READ, ResourceType.GROUP, "g")})
    wire.connection.granted = "what the first one may"
    wire.connection.principal = "User:bob"
    wire.send(frame)
    assert authorizer.asked[-1][0] == "User:bob"
    assert (len(stage.contexts), from_prefix(stage.connections)) == (1, 2)
    assert stage.contexts[-1].refused == authorizer.told
    assert wire.connection.granted is None


def test_a_request_that_is_refused_as_a_whole_does_not_reach_its_handler():
    group = Need(Operation.READ, ResourceType.GROUP, lambda request: (request.group_id,), is_whole=True)
    stage = Stage((group,))
    stage.dispatcher.authorizer = Recording((Operation.READ, ResourceType.GROUP, "secret"))
    wire = Wire(stage.connections)
    for name in ("open", "secret", "open"):
        wire.send(request_frame(beat(name), 4, 1, "me"))
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert len(stage.contexts) == 2
    route = stage.dispatcher.routes.resolve(HEARTBEAT << 16 | 4)
    assert (route.requests, route.errors) == (3, {code: 1})


# What it costs


def hurried(**quotas):
    """Meters in which any request of the user bob takes too long."""
    meters = QuotaMeters(monotonic_ms)
    meters.follow({(("user", "bob"),): {"request_percentage": 1e-9, **quotas}})
    return meters


def heartbeat_wait(frame, version=4):
    return read_response(frame[4:], HeartbeatRequest, version)[1].throttle_time_ms


@pytest.mark.parametrize("remembers", [False, True])
def test_a_client_over_its_quota_has_its_answer_and_begins_nothing_until_it_has_waited(remembers):
    stage = Stage(remembered_versions=range(5) if remembers else None)
    stage.dispatcher.meters = hurried()
    held, other = Wire(stage.connections), Wire(stage.connections, "192.0.2.8")
    held.connection.principal = "User:bob"
    frame = request_frame(beat(), 4, 7, "me")
    held.send(frame + frame)
    assert [heartbeat_wait(one) for one in held.frames] == [1000]
    assert not held.transport.is_reading
    other.send(frame)
    assert [heartbeat_wait(one) for one in other.frames] == [0]
    stage.loop.run(until_ms=1_999)
    assert len(held.frames) == 1
    stage.dispatcher.meters = None
    stage.loop.run(until_ms=2_000)
    assert [heartbeat_wait(one) for one in held.frames] == [1000, 0]
    assert held.transport.is_reading


@pytest.mark.parametrize("remembers", [False, True])
def test_a_client_whose_version_does_not_say_so_waits_as_well(remembers):
    stage = Stage(remembered_versions=range(5) if remembers else None)
    stage.dispatcher.meters = hurried()
    wire = Wire(stage.connections)
    wire.connection.principal = "User:bob"
    frame = request_frame(beat(), 0, 7, "me")
    wire.send(frame + frame)
    assert len(wire.frames) == 1
    stage.loop.run(until_ms=2_000)
    assert len(wire.frames) == 2


def test_whoever_logs_in_under_another_name_has_other_quotas():
    stage = Stage(remembered_versions=range(5))
    stage.dispatcher.meters = hurried()
    wire = Wire(stage.connections)
    frame = request_frame(beat(), 4, 7, "me")
    wire.send(frame)
    wire.connection.principal = "User:bob"
    wire.send(frame)
    assert [heartbeat_wait(one) for one in wire.frames] == [0, 1000]


def test_quotas_of_client_ids_are_of_each_request_for_itself():
    stage = Stage(remembered_versions=range(5))
    stage.dispatcher.meters = meters = QuotaMeters(monotonic_ms)
    wire = Wire(stage.connections)
    meters.follow({(("client-id", "hasty"),): {"request_percentage": 1e-9}})
    for client_id in ("calm", "calm", "hasty"):
        wire.send(request_frame(beat(), 4, 7, client_id))
    assert [heartbeat_wait(one) for one in wire.frames] == [0, 0, 1000]
    meters.follow({})
    stage.loop.run(until_ms=2_000)
    wire.send(request_frame(beat(), 4, 7, "hasty"))
    assert heartbeat_wait(wire.frames[-1]) == 0


class Later(Stage):
    """Its answers come when the test completes them."""

    def handle(self, request, context):
        self.contexts.append(context)
        self.waiting = Waiting()
        return self.waiting


def test_an_answer_that_came_late_holds_back_the_next_request_too():
    stage = Later()
    stage.dispatcher.meters = hurried()
    wire = Wire(stage.connections)
    wire.connection.principal = "User:bob"
    frame = request_frame(beat(), 4, 7, "me")
    wire.send(frame)
    assert wire.transport.is_reading
    stage.waiting.complete(HeartbeatResponse(error_code=0))
    stage.loop.run(until_ms=1_000)
    assert [heartbeat_wait(one) for one in wire.frames] == [1000]
    assert not wire.transport.is_reading
    wire.send(frame)
    assert len(stage.contexts) == 1
    stage.loop.run(until_ms=2_000)
    assert len(stage.contexts) == 2


def test_the_time_of_waiting_is_no_processor_time():
    stage = Later()
    stage.dispatcher.meters = meters = QuotaMeters(monotonic_ms)
    # A tenth of a second in ten seconds.
    meters.follow({(("user", "bob"),): {"request_percentage": 1.0}})
    wire = Wire(stage.connections)
    wire.connection.principal = "User:bob"
    wire.send(request_frame(beat(), 4, 7, "me"))
    began = time.perf_counter()
    while time.perf_counter() - began < 0.2:
        pass
    stage.waiting.complete(HeartbeatResponse(error_code=0))
    stage.loop.run(until_ms=1_000)
    assert [heartbeat_wait(one) for one in wire.frames] == [0]


def test_what_a_handler_says_of_waiting_is_kept_and_obeyed():
    stage = Stage()
    stage.dispatcher.meters = QuotaMeters(monotonic_ms)
    stage.handle = lambda request, context: HeartbeatResponse(error_code=0, throttle_time_ms=300)
    stage.dispatcher.routes.resolve(HEARTBEAT << 16 | 4).handle = stage.handle
    wire = Wire(stage.connections)
    frame = request_frame(beat(), 4, 7, "me")
    wire.send(frame + frame)
    assert [heartbeat_wait(one) for one in wire.frames] == [300]
    stage.loop.run(until_ms=1_300)
    assert len(wire.frames) == 2


def test_a_client_that_waits_is_not_idle_and_one_that_has_gone_leaves_no_timer():
    stage = Stage()
    stage.dispatcher.meters = hurried()
    wire = Wire(stage.connections)
    wire.connection.principal = "User:bob"
    wire.send(request_frame(beat(), 4, 7, "me"))
    stage.connections.sweep(10**9, 10**9)
    assert not wire.transport.is_closed
    assert len(stage.loop.later) == 1
    wire.connection.connection_lost(None)
    assert stage.loop.later == []
    assert not wire.connection.requests.is_held_back


def test_of_two_pauses_the_longer_one_counts():
    stage = Stage()
    wire = Wire(stage.connections)
    for hold_ms in (700, 300):
        wire.connection.requests.hold_back(hold_ms)
    wire.send(request_frame(beat(), 4, 7, "me"))
    stage.loop.run(until_ms=1_699)
    assert stage.contexts == []
    stage.loop.run(until_ms=1_700)
    assert len(stage.contexts) == 1


class Unmakeable(dict):
    """APIs of which none can be made."""

    def get(self, key, default=None):
        raise RuntimeError("a bug")


def test_an_api_that_cannot_be_made_closes_the_connection_and_nothing_else(caplog):
    loop = Loop()
    connections = wired(Unmakeable(), loop, lambda: loop.now_ms)
    for _ in range(2):
        wire = Wire(connections)
        wire.send(request_frame(beat(), 4, 7, "me"))
        loop.run(until_ms=1_000)
        assert wire.transport.is_closed
    assert caplog.text.count("internal error in a request") == 2


# What is counted


def test_requests_errors_bytes_and_time_are_counted_by_api_and_version():
    stage = Stage(remembered_versions=range(4, 5))
    wire = Wire(stage.connections)
    frames = [
        request_frame(beat(group), version, 1, "me") for version in (3, 4) for group in ("g", "27", "g")
    ]
    for frame in frames:
        wire.send(frame)
    answers = [len(frame) for frame in wire.frames]
    metrics = stage.dispatcher.routes.metrics()
    assert set(metrics) == {("Heartbeat", 3), ("Heartbeat", 4)}
    old, new = metrics["Heartbeat", 3], metrics["Heartbeat", 4]
    assert (old.requests, old.remembered, old.errors) == (3, 0, {27: 1})
    assert (new.requests, new.remembered, new.errors) == (3, 3, {})
    assert [old.bytes_in, new.bytes_in] == [sum(map(len, frames[:3])), sum(map(len, frames[3:]))]
    assert [old.bytes_out, new.bytes_out] == [sum(answers[:3]), sum(answers[3:])]
    assert old.seconds > 0
    assert new.seconds > 0


def test_a_broker_in_this_process_tells_its_metrics(tmp_path):
    with Broker(data_dir=tmp_path, auto_create_topics_enable=False) as broker:
        assert broker.metrics() == {}
        with RawClient(broker.port) as client:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="none")])
            answer = client.ask(request, 9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (metrics,) = broker.metrics().values()
        assert (metrics.requests, metrics.errors) == (1, {3: 1})
    with pytest.raises(RuntimeError, match="does not run"):
        broker.metrics()


# The end of a turn

PRODUCE_VERSION = 9


class Producing:
    """Produce as the only API. Its handler stages a partition, and the commit answers."""

    def __init__(self, after_commit=lambda context: None, overlaps=()):
        self.loop = Loop()
        self.events = []
        self.after_commit = after_commit
        api = served(ProduceRequest, ProduceResponse, self.handle, overlaps=overlaps)
        self.connections = wired({PRODUCE: api}, self.loop, lambda: self.loop.now_ms)
        self.turn = self.connections.dispatcher.turn

    def handle(self, request, context):
        waiting = Waiting()
        number = context.correlation_id
        self.events.append(f"staged {number}")

        def committed(error):
            self.after_commit(context)
            waiting.complete(ProduceResponse())

        self.turn.add(self, committed, COMMITTED)
        return waiting

    def commit(self):
        self.events.append("commit")


def produced(number, size_bytes):
    """A frame with so many bytes of records."""
    partition = PartitionProduceData(index=0, records=bytes(size_bytes))
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    return request_frame(request, PRODUCE_VERSION, number, "me")


def test_a_turn_ends_with_the_request_that_brings_it_to_half_a_megabyte():
    stage = Producing()
    wires = [Wire(stage.connections) for _ in range(4)]
    for number, (wire, size_bytes) in enumerate(zip(wires, (10, 300_000, 300_000, 10), strict=True)):
        wire.send(produced(number, size_bytes))
    assert stage.events == ["staged 0", "staged 1", "staged 2", "commit", "staged 3"]
    assert [len(wire.frames) for wire in wires] == [1, 1, 1, 0]
    # The count begins anew.
    wires[0].send(produced(4, 300_000))
    assert stage.events[5:] == ["staged 4"]
    stage.loop.run(stage.loop.now_ms)
    assert stage.events[6:] == ["commit"]
    assert [len(wire.frames) for wire in wires] == [2, 1, 1, 1]


def test_whoever_is_resumed_by_the_end_of_a_turn_ends_none_inside_it():
    stage = Producing()
    held, other = (Wire(stage.connections) for _ in range(2))
    held.send(produced(0, 10) + produced(1, 600_000))
    assert (stage.events, held.transport.is_reading) == (["staged 0"], False)
    other.send(produced(2, 600_000))
    assert stage.events == ["staged 0", "staged 2", "commit", "staged 1"]
    assert (len(held.frames), len(other.frames), held.transport.is_reading) == (1, 1, True)
    stage.loop.run(stage.loop.now_ms)
    assert stage.events[4:] == ["commit"]
    assert len(held.frames) == 2


def test_a_connection_that_the_end_of_a_turn_closes_begins_no_more_requests():
    stage = Producing(lambda context: context.connection.close("refused"), overlaps=(ProduceRequest,))
    first, second, third = (Wire(stage.connections) for _ in range(3))
    first.send(produced(0, 10))
    second.send(produced(1, 500_000))
    third.send(produced(2, 30_000) + produced(3, 10))
    assert stage.events == ["staged 0", "staged 1", "staged 2", "commit"]
    assert third.is_closing
