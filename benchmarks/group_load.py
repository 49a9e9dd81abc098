"""Members of groups, hundreds of them in one process: how long a group takes to become stable.

Each member has a connection of its own and is a small machine: it joins, takes what it is given, sends
heartbeats, and joins again when it is told to. They heartbeat every HEARTBEAT_S, evenly spread, whatever the
broker proposes, so that both brokers hear of them equally often. One epoll, no thread.
"""

from __future__ import annotations

import abc
import collections
import resource
import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.wire_client import WireClient
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CLIENT_ID = "benchmark"
HEARTBEAT_S = 0.5
SESSION_MS = 300_000
PATIENCE_S = 180.0
JOIN, SYNC, HEARTBEAT, LEAVE, CONSUMER_HEARTBEAT = 9, 5, 4, 5, 1
"""Versions."""
CLASSIC, CONSUMER = "classic", "consumer"
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


def coordinator(client: WireClient, group: str) -> int:
    """The node that coordinates the group; -1 where nobody does yet."""
    found = client.call(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4).coordinators[0]
    return -1 if found.error_code else int(found.node_id)


def wait_for_coordinator(client: WireClient, group: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    while True:
        is_found = coordinator(client, group) >= 0
        # Kafka answers heartbeats with NONE while it loads the group, whoever's they are.
        if is_found and client.call(beat, HEARTBEAT).error_code not in (*NOT_READY, ErrorCode.NONE):
            return
        assert time.monotonic() < deadline, "there is no group coordinator"
        time.sleep(0.02)


class Member(abc.ABC):
    """`time_due` is when it wants to send a heartbeat; `is_settled` whether it has its part."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.number = group, number
        self.socket = socket.create_connection(("127.0.0.1", group.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._asked: Any = None

    def send(self, request: Any, version: int) -> None:
        self._asked = (type(request), version)
        self.socket.sendall(request_frame(request, version, 1, CLIENT_ID))

    def take(self) -> None:
        """Reads what has come and goes on."""
        piece = self.socket.recv(1 << 20)
        assert piece, "the broker closed a connection"
        self._received += piece
        if len(self._received) < 4:
            return
        size = 4 + int.from_bytes(self._received[:4], "big")
        if len(self._received) >= size:
            frame = bytes(self._received[4:size])
            del self._received[:size]
            request, version = self._asked
            self.answered(request, read_response(frame, request, version)[1])

    def rest(self) -> None:
        """Until its next heartbeat."""
        self.group.beats.append((time.perf_counter() + HEARTBEAT_S, self))

    @abc.abstractmethod
    def join(self) -> None: ...

    @abc.abstractmethod
    def beat(self) -> None: ...

    @abc.abstractmethod
    def leave(self) -> None: ...

    @abc.abstractmethod
    def answered(self, request: Any, answer: Any) -> None: ...


class ClassicMember(Member):
    member_id = ""
    generation = -1
    is_leaving = False

    def join(self) -> None:
        self.group.unsettle(self)
        self.send(
            JoinGroupRequest(
                group_id=self.group.name,
                member_id=self.member_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=self.group.subscription)],
            ),
            JOIN,
        )

    def beat(self) -> None:
        self.send(
            HeartbeatRequest(
                group_id=self.group.name, generation_id=self.generation, member_id=self.member_id
            ),
            HEARTBEAT,
        )

    def leave(self) -> None:
        self.send(
            LeaveGroupRequest(group_id=self.group.name, members=[MemberIdentity(member_id=self.member_id)]),
            LEAVE,
        )

    def answered(self, request: Any, answer: Any) -> None:
        code = answer.error_code
        if request is JoinGroupRequest and code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif code in JOIN_AGAIN:
            self.join()
        elif code:
            raise AssertionError(f"{request.__name__}: {ErrorCode(code).name}")
        elif request is JoinGroupRequest:
            self._sync(answer)
        elif request is SyncGroupRequest:
            self.group.settle(self, self.generation)
            self.rest()
        elif request is HeartbeatRequest:
            self.rest()

    def _sync(self, joined: Any) -> None:
        self.member_id, self.generation = joined.member_id, joined.generation_id
        parts = []
        if joined.leader == joined.member_id:
            parts = [
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=self.group.part(number))
                for number, one in enumerate(joined.members)
            ]
        self.send(
            SyncGroupRequest(
                group_id=self.group.name,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=parts,
            ),
            SYNC,
        )


class ConsumerMember(Member):
    """Of the new protocol. It gives up at once what it is told to give up."""

    epoch = 0
    owned: Sequence[Any] = ()

    @property
    def member_id(self) -> str:
        return f"member-{self.number:06}"

    def join(self) -> None:
        self.group.unsettle(self)
        self.epoch, self.owned = 0, ()
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group.name,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=SESSION_MS,
                subscribed_topic_names=[self.group.topic],
                topic_partitions=[],
            ),
            CONSUMER_HEARTBEAT,
        )

    def _send(self, epoch: int, owned: Sequence[Any] | None) -> None:
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group.name,
                member_id=self.member_id,
                member_epoch=epoch,
                topic_partitions=None if owned is None else list(owned),
            ),
            CONSUMER_HEARTBEAT,
        )

    def beat(self) -> None:
        self._send(self.epoch, None)

    def leave(self) -> None:
        self._send(-1, None)

    def answered(self, request: Any, answer: Any) -> None:
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.join()
            return
        assert answer.error_code == 0, (ErrorCode(answer.error_code).name, answer.error_message)
        if answer.member_epoch < 0:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
            self.group.unsettle(self)
            self._send(self.epoch, self.owned)
            return
        if sum(len(one.partitions) for one in self.owned):
            self.group.settle(self, self.epoch)
        self.rest()


MEMBERS = {CLASSIC: ClassicMember, CONSUMER: ConsumerMember}


class Group:
    """So many members on a topic of as many partitions; stable when all have settled in one generation."""

    def __init__(self, port: int, name: str, topic: str, protocol: str, count: int) -> None:
        self.port, self.name, self.topic = port, name, topic
        self.subscription = encode(ConsumerProtocolSubscription(topics=[topic]), 1)
        self.beats: collections.deque[tuple[float, Member]] = collections.deque()
        self._settled: dict[Member, int] = {}
        self._counts: collections.Counter[int] = collections.Counter()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._selector = selectors.DefaultSelector()
        self.members: list[Member] = [MEMBERS[protocol](self, number) for number in range(count)]
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            self._selector.unregister(member.socket)
            member.socket.close()
        self._selector.close()

    def part(self, number: int) -> bytes:
        one = AssignedTopicPartitions(topic=self.topic, partitions=[number])
        return encode(ConsumerProtocolAssignment(assigned_partitions=[one]), 1)

    def settle(self, member: Member, generation: int) -> None:
        self.unsettle(member)
        self._settled[member] = generation
        self._counts[generation] += 1

    def unsettle(self, member: Member) -> None:
        if (generation := self._settled.pop(member, None)) is not None:
            self._counts[generation] -= 1

    def start_s(self) -> float:
        """Seconds from the first join until all are settled."""
        began = time.perf_counter()
        for member in self.members:
            member.join()
        return self._until_settled(-1) - began

    def leave_s(self) -> float:
        """Seconds from the moment when the last member leaves until the others have its part."""
        before = max(self._settled.values())
        leaving = self.members[-1]
        # Its answer may be that of a heartbeat that is under way.
        while leaving not in {member for _, member in self.beats}:
            self._turn()
        self.beats = collections.deque(one for one in self.beats if one[1] is not leaving)
        self.unsettle(leaving)
        began = time.perf_counter()
        leaving.leave()
        self.members.remove(leaving)
        try:
            return self._until_settled(before) - began
        finally:
            self.members.append(leaving)

    def _until_settled(self, before: int) -> float:
        """The moment when all members are settled in one generation after `before`."""
        deadline = time.perf_counter() + PATIENCE_S
        while True:
            self._turn()
            now = time.perf_counter()
            if len(self._settled) == len(self.members):
                newest = max(self._settled.values())
                if newest > before and self._counts[newest] == len(self.members):
                    return now
            assert now < deadline, f"{len(self._settled)} of {len(self.members)} members are settled"

    def _turn(self) -> None:
        now = time.perf_counter()
        while self.beats and self.beats[0][0] <= now:
            self.beats.popleft()[1].beat()
        wait = self.beats[0][0] - now if self.beats else HEARTBEAT_S
        for key, _ in self._selector.select(max(0.0, wait)):
            key.data.take()


def lone_member(client: WireClient, group: str, topic: str, protocol: str) -> tuple[str, int]:
    """A stable group of one member, which is not heard of again; its id and its generation or epoch."""
    member_id = ""
    if protocol == CONSUMER:
        return _lone_consumer(client, group, topic)
    subscription = encode(ConsumerProtocolSubscription(topics=[topic]), 1)
    for _ in range(2):
        joined = client.call(
            JoinGroupRequest(
                group_id=group,
                member_id=member_id,
                session_timeout_ms=SESSION_MS * 6,
                rebalance_timeout_ms=SESSION_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            ),
            JOIN,
        )
        member_id = joined.member_id
    assert joined.error_code == 0, ErrorCode(joined.error_code).name
    one = AssignedTopicPartitions(topic=topic, partitions=[0])
    part = encode(ConsumerProtocolAssignment(assigned_partitions=[one]), 1)
    synced = client.call(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=part)],
        ),
        SYNC,
    )
    assert synced.error_code == 0, ErrorCode(synced.error_code).name
    return member_id, joined.generation_id


def _lone_consumer(client: WireClient, group: str, topic: str) -> tuple[str, int]:
    member_id = f"member-of-{group}"
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.call(request, CONSUMER_HEARTBEAT)
        assert answer.error_code == 0, (ErrorCode(answer.error_code).name, answer.error_message)
        given = answer.assignment
        if given is None and request.topic_partitions:
            return member_id, answer.member_epoch
        assert time.monotonic() < deadline, f"{group} does not get its partitions"
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=answer.member_epoch,
            topic_partitions=None if given is None else given.topic_partitions,
        )
