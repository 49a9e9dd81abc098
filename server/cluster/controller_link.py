"""The link to the controllers of a cluster: a thread with an event loop of its own.

A node whose event loop is busy, with a recovery or with garbage collection, must not be fenced: heartbeats
come from here. The thread follows the metadata log too, makes views of it, and carries requests to the
controller that leads. What it has to say it says on the node's event loop (`LinkListener`).

One view is on its way to the node at a time. What is committed meanwhile is joined into the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from odradek.coordinator.cluster.view import ClusterChange, ClusterView
from odradek.coordinator.kraft.broker_lifecycle import (
    BrokerLifecycle,
    BrokerState,
    Heartbeat,
    HeartbeatResult,
    LifecycleSettings,
    Registration,
)
from odradek.coordinator.kraft.metadata_fetcher import (
    Committed,
    Controller,
    FetcherSettings,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    MetadataFetcher,
    SnapshotResult,
)
from odradek.server.network.peers import Peer, PeerLost, SetupTimeout, client_id_of, common_version, connect
from odradek.server.network.timers import monotonic_ms
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from odradek.wire.messages.metadata_records import records_of_batch
from odradek.wire.records import iter_whole_batches
from odradek.wire.schema import Message

logger = logging.getLogger("odradek.cluster")

FETCH_WAIT_MS = 500
ASK_AGAIN_S = 0.25
CONTROLLERS = 2
"""In DescribeCluster: the endpoints of controllers."""


class NoController(ConnectionError):
    """No controller leads, or it did not answer in time."""


class LinkListener(Protocol):
    """The node, on its event loop."""

    def view_made(self, view: ClusterView, change: ClusterChange, offset: int) -> None:
        """The metadata log up to before `offset`. Call `ControllerLink.applied` once the node has done it."""

    def state_changed(self, state: BrokerState, broker_epoch: int, is_fenced: bool) -> None:
        """The node's new state, as the controller says."""

    def controller_versions_told(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """First and last version by API key that the controller serves which leads now."""

    def link_failed(self, sentence: str) -> None:
        """The node has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """One node as its controllers know it."""

    bootstrap: Sequence[Controller]
    cluster_id: str
    node_id: int
    registration: BrokerRegistrationRequest
    directory_id: bytes
    """Id of the directory with the metadata of the node."""
    lifecycle: LifecycleSettings
    fetcher: FetcherSettings
    request_timeout_ms: int = 2_000
    """`controller.quorum.request.timeout.ms`"""
    socket_timeout_ms: int = 30_000
    """`controller.socket.timeout.ms`: of requests to the controller that are not about the log."""
    fetch_max_bytes: int = 1_048_576
    """`controller.quorum.fetch.max.bytes`"""
    snapshot_max_bytes: int = 1_048_576
    """`controller.quorum.fetch.snapshot.max.bytes`: of one part of a snapshot."""
    setup: SetupTimeout = field(default_factory=SetupTimeout)


class ControllerLink:
    """`start`, then `close`. All public methods are for the node's event loop."""

    def __init__(self, settings: LinkSettings, listener: LinkListener) -> None:
        self._settings = settings
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._node_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="odradek-controller-link", daemon=True)
        now_ms = monotonic_ms()
        self._fetcher = MetadataFetcher(settings.bootstrap, settings.fetcher, now_ms)
        self._lifecycle = BrokerLifecycle(settings.lifecycle, now_ms)
        self._refusals = Refusals(settings.node_id)
        self._image = MetadataImage(settings.node_id, settings.cluster_id)
        self.setup = settings.setup
        self._channels: list[_Channel] = []
        self._requests = self._channel("forwarding")
        self._isr_requests = self._channel("ISR")
        self._is_view_under_way = False
        self._applied_offset = 0
        self._lifecycle_wish = asyncio.Event()
        self._known_leader: Controller | None = None
        self._reported: tuple[BrokerState, int, bool] | None = None
        self._controller_versions: Mapping[int, tuple[int, int]] = {}
        self._main: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look for the controllers."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; nothing more is said to the listener."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join()

    # For the node

    def applied(self, offset: int) -> None:
        """The node has taken in the view that goes to before `offset`."""
        self._call(self._note_applied, offset)

    def set_ready(self) -> None:
        """The node can serve: it wants to be unfenced."""
        self._wish(lambda now_ms: self._lifecycle.set_ready(now_ms))

    def begin_shutdown(self) -> None:
        """Ask to be let go; `state_changed` says when."""
        self._wish(lambda now_ms: self._lifecycle.begin_shutdown(now_ms))

    def report_offline(self, directory_ids: Sequence[bytes]) -> None:
        """Log directories that have failed."""
        self._wish(lambda now_ms: self._lifecycle.report_offline(directory_ids, now_ms))

    def report_cordoned(self, directory_ids: Sequence[bytes] | None) -> None:
        """Log directories that take no new partitions; None: the controllers do not ask for them."""
        self._wish(lambda now_ms: self._lifecycle.report_cordoned(directory_ids, now_ms))

    def ask(self, request: Message, *, timeout_ms: float | None = None) -> Future[Any]:
        """The response of the controller that leads. Raises NoController in the future: the request may have
        been carried out all the same."""
        if timeout_ms is None:
            timeout_ms = self._settings.socket_timeout_ms
        return _begin(self._requests.ask_leader(request, timeout_ms), self._loop)

    def ask_for_isr(self, request: AlterPartitionRequest) -> Future[Any]:
        """Asks like `ask`, on a connection of its own: nothing slow is in front of it."""
        asking = self._isr_requests.ask_leader(request, self._settings.socket_timeout_ms)
        return _begin(asking, self._loop)

    # The thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._live())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
        finally:
            # Requests of the node that are under way: their futures are cancelled.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    def _end(self) -> None:
        if self._main is not None:
            self._main.cancel()

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_log())
                tasks.create_task(self._keep_registered())
        except* _Ended as ended:
            self._tell(self._listener.link_failed, str(ended.exceptions[0]))
        except* Exception as failed:
            logger.critical("the link to the controllers has failed", exc_info=failed)
            self._tell(self._listener.link_failed, "the link to the controllers has failed")
        finally:
            for channel in self._channels:
                channel.close()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the link has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._node_loop.call_soon_threadsafe(function, *arguments)

    @property
    def request_timeout_ms(self) -> int:
        """Limit for one request about the log, and for a connection."""
        return self._settings.request_timeout_ms

    def _channel(self, name: str) -> _Channel:
        channel = _Channel(self, name, client_id_of(self._settings.node_id))
        self._channels.append(channel)
        return channel

    @property
    def leader(self) -> Controller | None:
        """Leader of the quorum, as far as the log has said. Used in the thread."""
        return self._fetcher.leader

    def connected(self, peer: Peer) -> None:
        """Notes a connection to a controller, mostly the one that leads. Used in the thread."""
        if peer.versions != self._controller_versions:
            self._controller_versions = peer.versions
            self._tell(self._listener.controller_versions_told, peer.versions)

    # The metadata log

    async def _follow_log(self) -> None:
        fetcher, channel = self._fetcher, self._channel("metadata log")
        silence = _Silence(self._settings.bootstrap)
        while True:
            await asyncio.sleep(max(fetcher.due_ms - monotonic_ms(), 0) / 1000)
            wanted = fetcher.next_request()
            try:
                committed = await self._fetch(channel, wanted)
            except (PeerLost, KafkaError, MalformedMessage) as error:
                silence.failed(error)
                channel.close()
                fetcher.failed(monotonic_ms())
                continue
            silence.ended()
            self._note_leader()
            for one in committed:
                self._take(one)
            if committed:
                self._hand_over()

    def _note_leader(self) -> None:
        leader = self._fetcher.leader
        if leader is not None and leader != self._known_leader:
            self._lifecycle.leader_found(monotonic_ms())
            self._lifecycle_wish.set()
        self._known_leader = leader

    async def _fetch(self, channel: _Channel, wanted: FetchLog | FetchSnapshot) -> list[Committed]:
        peer = await channel.to(wanted.controller)
        timeout_ms = self._settings.request_timeout_ms + FETCH_WAIT_MS
        request = self._request_of(wanted)
        response = await peer.ask_within(request, common_version(peer, type(request)), timeout_ms)
        now_ms = monotonic_ms()
        if isinstance(wanted, FetchLog):
            found = _fetch_result(response)
            self._check_cluster(found.error)
            return self._fetcher.fetched(found, now_ms)
        return self._fetcher.snapshot_fetched(_snapshot_result(response), now_ms)

    def _request_of(self, wanted: FetchLog | FetchSnapshot) -> FetchRequest | FetchSnapshotRequest:
        settings = self._settings
        if isinstance(wanted, FetchSnapshot):
            snapshot = PartitionSnapshot(
                partition=0,
                current_leader_epoch=wanted.leader_epoch,
                snapshot_id=SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
                position=wanted.position,
                replica_directory_id=settings.directory_id,
            )
            return FetchSnapshotRequest(
                cluster_id=settings.cluster_id,
                replica_id=settings.node_id,
                max_bytes=settings.snapshot_max_bytes,
                topics=[TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[snapshot])],
            )
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=wanted.leader_epoch,
            fetch_offset=wanted.offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            log_start_offset=0,
            partition_max_bytes=settings.fetch_max_bytes,
            replica_directory_id=settings.directory_id,
            high_watermark=wanted.high_watermark,
        )
        return FetchRequest(
            cluster_id=settings.cluster_id,
            replica_state=ReplicaState(replica_id=settings.node_id, replica_epoch=-1),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=settings.fetch_max_bytes,
            topics=[FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _take(self, committed: Committed) -> None:
        """A snapshot has offsets of its own: it goes to before `next_offset`."""
        image = self._image
        if committed.is_snapshot:
            image.begin_snapshot()
        try:
            batches = memoryview(committed.batches)
            for position, header in iter_whole_batches(batches):
                for record in records_of_batch(batches[position : position + header.size_bytes], header):
                    image.replay(record)
                if not committed.is_snapshot:
                    image.end_batch(header.last_offset)
        except (MalformedMessage, InconsistentMetadata, KafkaError) as error:
            raise _Ended(f"the metadata of the cluster cannot be read: {error}") from error
        if committed.is_snapshot:
            image.end_batch(committed.next_offset - 1)
            logger.info("took the snapshot of the metadata up to offset %d", committed.next_offset - 1)

    def _hand_over(self) -> None:
        """The next view, if the node waits for none."""
        if self._is_view_under_way:
            return
        offset = self._image.offset + 1
        made = self._image.publish()
        if made is None:
            self._applied_offset = offset
            return
        self._is_view_under_way = True
        self._tell(self._listener.view_made, *made, offset)

    def _note_applied(self, offset: int) -> None:
        self._is_view_under_way = False
        self._applied_offset = max(self._applied_offset, offset)
        if self._image.offset >= offset:
            self._hand_over()
        if self._lifecycle.state is BrokerState.STARTING:
            self._lifecycle_wish.set()

    def _check_cluster(self, error: ErrorCode) -> None:
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise _Ended(
                f"the controllers are not of the cluster {self._settings.cluster_id}, to which this node "
                "belongs (INCONSISTENT_CLUSTER_ID): see cluster.id in meta.properties and --cluster-id"
            )

    # Registration and heartbeats

    async def _keep_registered(self) -> None:
        lifecycle, channel = self._lifecycle, self._channel("broker lifecycle")
        while lifecycle.state is not BrokerState.SHUTTING_DOWN:
            now_ms = monotonic_ms()
            if lifecycle.has_given_up(now_ms):
                raise _Ended(
                    "the controllers have not registered this node within "
                    f"{self._settings.lifecycle.initial_registration_timeout_ms} ms "
                    f"(initial.broker.registration.timeout.ms): {self._refusals.last}"
                )
            if lifecycle.has_kept_failures(now_ms):
                raise _Ended(
                    "a failed log directory could not be reported to the controllers within "
                    f"{self._settings.lifecycle.directory_failure_timeout_ms} ms (log.dir.failure.timeout.ms)"
                )
            wanted = lifecycle.next_request(now_ms, self._applied_offset - 1)
            if wanted is None:
                await self._until(lifecycle.look_again_ms)
                continue
            try:
                await self._report(channel, wanted)
            except PeerLost as error:
                logger.debug("%s", error)
                self._refusals.unanswered(error)
                channel.close()
                lifecycle.failed(monotonic_ms())
            self._tell_state()
        self._tell_state()
        await asyncio.Event().wait()

    async def _until(self, due_ms: int) -> None:
        """Or until the node wishes something."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due_ms - monotonic_ms(), 1) / 1000):
                await self._lifecycle_wish.wait()
        self._lifecycle_wish.clear()

    async def _report(self, channel: _Channel, wanted: Registration | Heartbeat) -> None:
        lifecycle = self._lifecycle
        if isinstance(wanted, Registration):
            response = await channel.ask(self._settings.registration, self._settings.request_timeout_ms)
            error = ErrorCode(response.error_code)
            if error is ErrorCode.NONE:
                before = _told_stop(self._settings.registration.previous_broker_epoch)
                logger.info("registered with broker epoch %d; %s", response.broker_epoch, before)
                self._refusals.ended()
                lifecycle.registered(response.broker_epoch, monotonic_ms())
            else:
                self._check_cluster(error)
                self._refusals.refused("the controllers do not register this node yet", error)
                lifecycle.failed(monotonic_ms())
            return
        cordoned = wanted.cordoned_directories
        request = BrokerHeartbeatRequest(
            broker_id=self._settings.node_id,
            broker_epoch=wanted.broker_epoch,
            current_metadata_offset=wanted.metadata_offset,
            want_fence=wanted.wants_fence,
            want_shut_down=wanted.wants_shutdown,
            offline_log_dirs=list(wanted.offline_directories),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )
        response = await channel.ask(request, self._settings.request_timeout_ms)
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._refusals.refused("the controllers refuse the heartbeats of this node", error)
            lifecycle.failed(monotonic_ms())
            return
        self._refusals.ended()
        lifecycle.heartbeat_answered(
            HeartbeatResult(response.is_caught_up, response.is_fenced, response.should_shut_down),
            monotonic_ms(),
        )

    def _wish(self, change: Callable[[int], None]) -> None:
        def carry_out() -> None:
            change(monotonic_ms())
            self._lifecycle_wish.set()

        self._call(carry_out)

    def _tell_state(self) -> None:
        lifecycle = self._lifecycle
        state = (lifecycle.state, lifecycle.broker_epoch, lifecycle.is_fenced)
        if state != self._reported:
            self._reported = state
            self._tell(self._listener.state_changed, *state)


def _told_stop(broker_epoch: int) -> str:
    """By the disk. Unless the controllers know of that stop the node is in no ISR and ELR (KIP-966): another
    epoch than the last one is of an older copy of the disk."""
    if broker_epoch < 0:
        return "its disks know of no clean stop, so it is in sync with nothing yet"
    return f"its disks are of a clean stop in broker epoch {broker_epoch}"


class _Ended(Exception):
    """A sentence why the node has to end."""


class _Silence:
    """Says once in a while that no controller answers."""

    FIRST_MS, INTERVAL_MS = 1_000, 30_000

    def __init__(self, bootstrap: Sequence[Controller]) -> None:
        self._names = ", ".join(map(str, bootstrap))
        self._since_ms = 0
        self._due_ms = 0

    def failed(self, error: Exception) -> None:
        now_ms = monotonic_ms()
        if not self._since_ms:
            self._since_ms, self._due_ms = now_ms, now_ms + self.FIRST_MS
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self.INTERVAL_MS
            logger.warning("waiting for the controllers at %s: %s", self._names, error)

    def ended(self) -> None:
        if self._since_ms and self._due_ms > self._since_ms + self.FIRST_MS:
            logger.info("the controllers answer again")
        self._since_ms = self._due_ms = 0


def _begin(asking: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
    try:
        return asyncio.run_coroutine_threadsafe(asking, loop)
    except RuntimeError:  # the loop is closed: the link has ended
        asking.close()
        ended: Future[Any] = Future()
        ended.set_exception(NoController("the link to the controllers has ended"))
        return ended


class Refusals:
    """Says once in a while why the controllers refuse the requests of this node's lifecycle."""

    INTERVAL_MS = 30_000

    def __init__(self, node_id: int, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self.last = "no controller has answered"
        """The last refusal, for people."""
        self._now_ms = now_ms
        self._reasons = {
            ErrorCode.DUPLICATE_BROKER_REGISTRATION: f"another process is registered as node {node_id} and "
            "lives, or has ended less than broker.session.timeout.ms ago; no two nodes may have the same "
            "node.id",
            ErrorCode.STALE_BROKER_EPOCH: f"another process has registered as node {node_id} since, or the "
            "node was unregistered; restart it if it is to go on",
            ErrorCode.UNSUPPORTED_VERSION: "the cluster has finalized a feature at a level that this node "
            "does not serve, or the controllers are older than this node can work with",
        }
        self._said: ErrorCode | None = None
        self._due_ms = 0

    def refused(self, what: str, error: ErrorCode) -> None:
        """One that does not lead is no refusal: the leader is looked for."""
        if error is ErrorCode.NOT_CONTROLLER:
            return
        reason = self._reasons.get(error)
        self.last = error.name if reason is None else f"{reason} ({error.name})"
        now_ms = self._now_ms()
        if error is not self._said or now_ms >= self._due_ms:
            self._said, self._due_ms = error, now_ms + self.INTERVAL_MS
            logger.warning("%s: %s", what, self.last)

    def unanswered(self, error: Exception) -> None:
        self.last = str(error)

    def ended(self) -> None:
        """The next refusal is said at once."""
        self._said = None


class _Channel:
    """One connection to the controller that leads, made anew when another one does."""

    def __init__(self, link: ControllerLink, name: str, client_id: str) -> None:
        self._link = link
        self._name, self._client_id = name, client_id
        self._peer: Peer | None = None
        self._controller: Controller | None = None

    async def to(self, controller: Controller) -> Peer:
        """A connection to just that controller. Raises PeerLost."""
        peer = self._peer
        if peer is not None and peer.is_open and controller == self._controller:
            return peer
        self.close()
        self._peer = await connect(
            controller.host,
            controller.port,
            name=f"controller ({self._name})",
            client_id=self._client_id,
            timeout_ms=self._link.request_timeout_ms,
            setup=self._link.setup,
        )
        self._controller = controller
        self._link.connected(self._peer)
        return self._peer

    async def ask(self, request: Message, timeout_ms: float) -> Any:
        """The leader's response to one attempt. Raises PeerLost."""
        leader = self._link.leader
        if leader is None:
            raise PeerLost("no controller leads")
        peer = await self.to(leader)
        return await peer.ask_within(request, common_version(peer, type(request)), timeout_ms)

    async def ask_leader(self, request: Message, timeout_ms: float) -> Any:
        """Asks like `ask`, but waits for a leader. A request that may have reached one is not sent again."""
        deadline_ms = monotonic_ms() + timeout_ms
        while True:
            left_ms = deadline_ms - monotonic_ms()
            if left_ms <= 0:
                raise NoController(f"no controller has led for {timeout_ms:g} ms")
            leader = self._link.leader
            try:
                peer = None if leader is None else await self.to(leader)
            except PeerLost:
                peer = None
            if peer is None:
                await asyncio.sleep(0.05)
                continue
            response = await peer.ask_within(request, common_version(peer, type(request)), left_ms)
            if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return response
            self.close()
            await asyncio.sleep(0.05)

    def close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()


async def find_cluster_id(
    controllers: Sequence[Controller], timeout_ms: int, setup: SetupTimeout, node_id: int
) -> str:
    """The cluster id, from the first controller that responds. Waits for one."""
    silence = _Silence(controllers)
    while True:
        for controller in controllers:
            try:
                cluster_id = await _ask_cluster_id(controller, timeout_ms, setup, client_id_of(node_id))
            except PeerLost as error:
                silence.failed(error)
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                silence.ended()
                return cluster_id


async def _ask_cluster_id(
    controller: Controller, timeout_ms: int, setup: SetupTimeout, client_id: str
) -> str:
    peer = await connect(
        controller.host,
        controller.port,
        name="controller",
        client_id=client_id,
        timeout_ms=timeout_ms,
        setup=setup,
    )
    try:
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        response = await peer.ask_within(request, common_version(peer, DescribeClusterRequest), timeout_ms)
    finally:
        peer.close()
    if response.error_code:
        raise PeerLost(f"{peer.name}: {ErrorCode(response.error_code).name} {response.error_message or ''}")
    cluster_id: str = response.cluster_id
    return cluster_id


# What comes over the wire


def _fetch_result(response: Any) -> FetchResult:
    error = ErrorCode(response.error_code)
    if error is not ErrorCode.NONE or not response.responses or not response.responses[0].partitions:
        if error is ErrorCode.NONE:
            raise PeerLost("an answer about no partition")
        return FetchResult(error, -1, -1, (), -1, None, None, b"")
    partition = response.responses[0].partitions[0]
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    records = partition.records
    return FetchResult(
        ErrorCode(partition.error_code),
        -1 if leader is None else leader.leader_id,
        -1 if leader is None else leader.leader_epoch,
        [Controller(one.node_id, one.host, one.port) for one in response.node_endpoints],
        partition.high_watermark,
        None if diverging is None or diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
        None if snapshot is None or snapshot.end_offset < 0 else (snapshot.end_offset, snapshot.epoch),
        b"" if records is None else records,
    )


def _snapshot_result(response: Any) -> SnapshotResult:
    error = ErrorCode(response.error_code)
    if error is not ErrorCode.NONE or not response.topics or not response.topics[0].partitions:
        return SnapshotResult(
            ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.NONE else error, -1, -1, (), 0, 0, b""
        )
    piece = response.topics[0].partitions[0]
    leader = piece.current_leader
    return SnapshotResult(
        ErrorCode(piece.error_code),
        -1 if leader is None else leader.leader_id,
        -1 if leader is None else leader.leader_epoch,
        [Controller(one.node_id, one.host, one.port) for one in response.node_endpoints],
        piece.size,
        piece.position,
        piece.unaligned_records or b"",
    )
