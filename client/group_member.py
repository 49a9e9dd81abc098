"""A member of a group: it gets partitions, keeps them by heartbeats, commits, gives them up, leaves.

    with GroupMember(settings, "billing", ["orders"], options, revoked=commit, lost=forget) as member:
        while True:
            member.poll(now_ms, timeout_s)
            read(member.assigned)
            member.commit({("orders", 0): 17})

There is no thread: heartbeats go out in `poll`, so a caller has to come back well within session.timeout.ms.
The member has connections of its own, since a join waits for others. `classic_member` and `consumer_member`
are the protocols of groups.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from odradek.client.classic_member import ClassicMember
from odradek.client.client_error import ClientError, Disconnected, refusal
from odradek.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition, coordinator_of
from odradek.client.connection import Connection, Pending, answered
from odradek.client.consumer_member import ConsumerMember
from odradek.client.group_offsets import Committer, GroupHasMembers, commit, committed
from odradek.client.member_settings import MemberSettings
from odradek.client.membership import LOST, Membership, Partitions
from odradek.client.patience import Patience
from odradek.client.settings import ClientSettings
from odradek.wire.errors import ErrorCode, error_of, is_retriable
from odradek.wire.schema import Message

COMMITS_MAX = 3
"""How often a commit is tried whose member epoch the broker has raised meanwhile."""
CATCH_UP_S = 1.0
"""How long a commit waits for a heartbeat that tells the new epoch."""
Told = Callable[[Partitions], object]


class _Sent:
    """The request under way to the coordinator."""

    __slots__ = ("connection", "pending", "until")

    def __init__(self, connection: Connection, pending: Pending, until: float) -> None:
        self.connection, self.pending, self.until = connection, pending, until


class GroupMember:
    """A member of one group, for one thread; joins with the first `poll`.

    `revoked(partitions)` is called before partitions are given up, and may commit; `lost(partitions)` when
    the group has gone on without the member, and a commit is not possible any more.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Collection[str],
        member: MemberSettings,
        *,
        revoked: Told,
        lost: Told,
    ) -> None:
        self.group = group
        self.assigned: Partitions = frozenset()
        """Partitions that the member has; another object after each change."""
        self._cluster = Cluster(settings)
        self._settings, self._member = settings, member
        self._revoked, self._lost = revoked, lost
        self._membership: Membership = self._made(topics)
        self._sent: _Sent | None = None
        self._patience = Patience(settings)
        self._now_ms = 0

    def _made(self, topics: Collection[str]) -> Membership:
        if self._member.protocol == "classic":
            return ClassicMember(self.group, topics, self._member, self._cluster.partitions_of)
        return ConsumerMember(self.group, topics, self._member, self._topic_ids, secrets.token_urlsafe)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_settled(self) -> bool:
        """Whether it has what it is to have, as far as it knows."""
        return self._membership.is_settled

    def poll(self, now_ms: int, timeout_s: float = 0.0) -> None:
        """Sends what is due, waits for so long at most for its response, and takes and gives up partitions.

        `now_ms` only grows. ClientError for what the group refuses, and when its coordinator has not answered
        for `patience_ms`.
        """
        self._now_ms = now_ms
        self._exchange(timeout_s)
        self._reconcile()

    def positions(self, partitions: Collection[TopicPartition], read_committed: bool) -> dict[Any, int]:
        """Where to begin in each of the partitions: at the commit, else by auto.offset.reset."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            wanted.setdefault(topic, []).append(partition)
        found = committed(self._cluster, self.group, wanted, is_stable=True) if wanted else {}
        starts = {key: offset for key, (offset, _) in found.items()}
        missing = [key for key in partitions if key not in starts]
        if missing and self._member.auto_offset_reset == "none":
            topic, partition = min(missing)
            raise ClientError(
                f"group {self.group} has no commit for topic {topic}, partition {partition}, and "
                "auto.offset.reset is none"
            )
        place = EARLIEST if self._member.auto_offset_reset == "earliest" else LATEST
        if missing:
            starts |= self._cluster.list_offsets(dict.fromkeys(missing, place), read_committed=read_committed)
        return starts

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits as a member; GroupHasMembers if the group has gone on without it, or is in a rebalance."""
        membership = self._membership
        for attempt in range(COMMITS_MAX):
            by = Committer(membership.member_id, membership.epoch, self._member.instance_id)
            try:
                commit(self._cluster, self.group, {key: (at, "") for key, at in offsets.items()}, by=by)
            except GroupHasMembers as error:
                if error.code == ErrorCode.STALE_MEMBER_EPOCH and attempt + 1 < COMMITS_MAX:
                    self._catch_up()
                    continue
                if error.code in LOST:
                    membership.lose(error.code)
                raise
            return

    def disconnect(self) -> None:
        """After an interrupt: half of a response may have been read, so the rest needs other connections."""
        self._cluster.close()
        if self._sent is not None:
            self._sent = None
            self._membership.failed()

    def close(self) -> None:
        """Leaves the group, without a commit; one attempt. A static member of a classic group stays in it."""
        if self._sent is not None:
            self.disconnect()  # a join that waits for others would let nothing pass
        with suppress(ClientError):
            connection = self._cluster.connect(self._target, self._patience)
            request = self._membership.leaving(connection.version_of)
            if request is not None:
                connection.ask(request, connection.version_of(type(request)))
        self.assigned = frozenset()
        self._cluster.close()

    @property
    def _target(self) -> Any:
        return coordinator_of("group", self.group)

    # Requests

    def _exchange(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        if self._sent is None:
            request = self._membership.request(self._now_ms)
            if request is not None:
                self._send(request)
        sent = self._sent
        left_s = max(0.0, until - time.monotonic())
        if sent is None:
            time.sleep(min(left_s, max(0, self._membership.wait_ms(self._now_ms)) / 1000))
        elif answered({sent.connection: sent.pending}, left_s, in_time=True):
            self._receive(sent)
        elif time.monotonic() > sent.until:
            sent.connection.close()
            self._failed(Disconnected(f"{sent.connection.address} does not answer"))

    def _send(self, request: Message) -> None:
        response_ms = self._membership.response_ms(request) or self._settings.request_timeout_ms
        try:
            connection = self._cluster.connect(self._target, self._patience)
            pending = connection.send(request, connection.version_of(type(request)))
        except Disconnected as error:
            self._failed(error)
            return
        self._sent = _Sent(connection, pending, time.monotonic() + response_ms / 1000)

    def _receive(self, sent: _Sent) -> None:
        try:
            response = sent.connection.receive(sent.pending)
        except Disconnected as error:
            self._failed(error)
            return
        self._sent = None
        code = error_of(response.error_code)
        if is_retriable(code):
            self._failed(refusal(f"joining group {self.group}", code))
            return
        self._patience.renew()
        self._membership.take(response, self._now_ms)

    def _failed(self, failure: ClientError) -> None:
        self._sent = None
        self._membership.failed()
        self._cluster.failed(self._target, failure)
        self._patience.pause(f"asking {self._target}", failure)

    def _catch_up(self) -> None:
        """Until a heartbeat is answered; partitions are taken and given up later, by `poll`."""
        if self._sent is None:
            self._membership.failed()  # the next heartbeat is due
        self._exchange(CATCH_UP_S)

    # Partitions

    def _reconcile(self) -> None:
        membership = self._membership
        if membership.is_lost:
            gone, self.assigned = self.assigned, frozenset()
            if gone:
                self._lost(gone)
            membership.acknowledge(self.assigned)
        elif membership.target is not None:
            gone = self.assigned - membership.target
            if gone:
                self._revoked(gone)
            # A commit in there may have found out that they are lost.
            if membership.is_lost or membership.target is None:
                self._reconcile()
                return
            if membership.target != self.assigned:
                self.assigned = membership.target
            membership.acknowledge(self.assigned)

    def _topic_ids(self, topics: Collection[str]) -> dict[bytes, str]:
        self._cluster.partitions_of(topics)
        return {self._cluster.topic_id(topic): topic for topic in topics}
