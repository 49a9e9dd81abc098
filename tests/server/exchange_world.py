"""A leader with real logs and two followers on connections without sockets. Requests that go on a session are
served in place, or all by the handler of Fetch: what comes of it should be the same.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from odradek.apis.fetch import Fetch
from odradek.apis.fetch_sessions import FetchSessionCache
from odradek.apis.leadership import Leadership
from odradek.apis.turn import Until
from odradek.coordinator.cluster.view import Broker, ClusterView, PartitionView, TopicView
from odradek.coordinator.replication.fetch_session import Asked, ReplicaFetchSession
from odradek.coordinator.replication.in_sync import AlteredIsr
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.server.cluster import leading
from odradek.server.cluster.leading import Leading
from odradek.server.cluster.replica_log import ReplicationSettings
from odradek.storage.config import LogConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, ReplicaState
from odradek.wire.records import Record, build_batch, iter_whole_batches
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, open_store
from tests.wired import Wire, served, wired

FETCH = 1
LEADER, FOLLOWERS = 1, (2, 3)
TOPICS = {"a": b"A" * 16, "b": b"B" * 16}
NAMES = {topic_id: name for name, topic_id in TOPICS.items()}
KEYS = (("a", 0), ("a", 1), ("b", 0))
VERSION = 18
MAX_WAIT_MS = 500
PLENTY = 1 << 20


class Loop:
    """Callbacks wait until they are run; timers until their time has come."""

    def __init__(self):
        self.now_ms = 1_000
        self.soon, self.later = [], []

    def call_soon(self, callback, *arguments):
        self.soon.append((callback, arguments))

    def after(self, delay_ms, callback):
        if delay_ms <= 0:
            return Handle(self.soon, self._added(self.soon, (callback, ())))
        return Handle(self.later, self._added(self.later, (self.now_ms + delay_ms, callback)))

    def call_later(self, delay_s, callback):
        return self.after(delay_s * 1000, callback)

    @staticmethod
    def _added(waiting, one):
        waiting.append(one)
        return one

    def run(self, milliseconds=0):
        until_ms = self.now_ms + milliseconds
        while True:
            while self.soon:
                callback, arguments = self.soon.pop(0)
                callback(*arguments)
            due = min([one for one in self.later if one[0] <= until_ms], key=lambda one: one[0], default=None)
            if due is None:
                break
            self.later.remove(due)
            self.now_ms = max(self.now_ms, due[0])
            due[1]()
        self.now_ms = until_ms


class Handle(NamedTuple):
    waiting: list
    one: tuple

    def cancel(self):
        if self.one in self.waiting:
            self.waiting.remove(self.one)


class Reads:
    """Work is done where it is asked for."""

    def run(self, work, done, failed):
        try:
            result = finish(work)
        except Exception as error:
            failed(error)
        else:
            done(result)


class Altering:
    tell = None

    def __init__(self):
        self.changes = []

    def submit(self, change):
        self.changes.append(change)

    def forget(self, key):
        pass


class World:
    """One of the two sides."""

    def __init__(self, monkeypatch, *, in_place, has_late_disk=False, max_bytes=PLENTY):
        self.loop = Loop()
        monkeypatch.setattr(leading, "monotonic_ms", self.clock_ms)
        self.max_bytes = max_bytes
        self.store = open_store(MemoryDisk())
        self.partitions = {
            key: self.store.create(*key, TOPICS[key[0]], LogConfig(), is_replicated=True) for key in KEYS
        }
        self.views = {
            key: PartitionView(key[1], LEADER, 5, (1, 2, 3), (1, 2, 3), partition_epoch=10) for key in KEYS
        }
        self.brokers = {node_id: Broker(node_id, {}, epoch=100 + node_id) for node_id in (1, 2, 3)}
        self.version = 0
        self.view = self.published()
        self.altering = Altering()
        self.quota = ReplicationQuota()
        self.saving = []
        self.has_late_disk = has_late_disk
        self.leadership = Leadership(lambda: self.view, self.store, LEADER)
        sessions = FetchSessionCache(100, random.Random(1).getrandbits and iter(range(1, 1 << 30)).__next__)
        fetch = Fetch(self.leadership, self.loop, Reads(), sessions, PLENTY)
        self.connections = wired(
            {FETCH: served(FetchRequest, FetchResponse, fetch)},
            self.loop,
            lambda: self.loop.now_ms,
            lambda: self.view,
        )
        self.turn = self.connections.dispatcher.turn
        self.leading = Leading(
            ReplicationSettings(node_id=LEADER, listener="PLAINTEXT"),
            self.store,
            lambda: self.view,
            self.altering,
            self.quota,
            self.loop,
            self.save_epochs,
            self.turn if in_place else None,
        )
        self.leadership.replicas = self.leading
        self.settled = []
        self.tick = 0
        for key in KEYS:
            self.leading.lead(key, self.partitions[key], self.views[key])
        self.followers = {node_id: Follower(self, node_id) for node_id in FOLLOWERS}

    def clock_ms(self):
        return self.loop.now_ms

    @property
    def served_in_place(self):
        return sum(route.from_prefix for route in self.connections.dispatcher.routes.found.values())

    def published(self):
        self.version += 1
        topics = {}
        for name, topic_id in TOPICS.items():
            partitions = tuple(view for key, view in self.views.items() if key[0] == name)
            topics[name] = TopicView(name, topic_id, partitions)
        return ClusterView(
            version=self.version,
            brokers=self.brokers,
            registrations=self.brokers,
            topics=topics,
            topic_names=NAMES,
        )

    def save_epochs(self, partition, done):
        if self.has_late_disk:
            self.saving.append(done)
        else:
            done(None)

    # What may happen

    def save(self):
        saving, self.saving = self.saving, []
        for done in saving:
            done(None)

    def see(self, key, **fields):
        view = self.views[key]
        self.views[key] = view._replace(partition_epoch=view.partition_epoch + 1, **fields)
        self.view = self.published()
        if self.views[key].leader == LEADER:
            self.leading.lead(key, self.partitions[key], self.views[key])
        else:
            self.leading.resign(key)

    def begin_epoch(self, key):
        self.see(key, leader=LEADER, leader_epoch=self.views[key].leader_epoch + 1)

    def hand_over(self, key):
        self.see(key, leader=2, leader_epoch=self.views[key].leader_epoch + 1)

    def set_isr(self, key, isr):
        self.see(key, isr=isr)

    def fence(self, node_id, is_fenced):
        broker = self.brokers[node_id]
        self.brokers = {
            **self.brokers,
            node_id: Broker(node_id, {}, epoch=broker.epoch, is_fenced=is_fenced),
        }
        self.view = self.published()
        self.leading.brokers_changed()

    def restart(self, node_id):
        """The broker has registered again; its fetches of before may still come."""
        self.brokers = {**self.brokers, node_id: Broker(node_id, {}, epoch=self.brokers[node_id].epoch + 10)}
        self.view = self.published()

    def throttle(self, name, is_throttled):
        self.quota.throttle(name, {0, 1} if is_throttled else ())
        self.view = self.published()

    def produce(self, key, counts, by_all=True):
        partition = self.partitions[key]
        if key not in self.leading.leaders or not partition.is_available:
            return
        for count in counts:
            self.tick += 1
            records = [Record(i, NOW_MS, b"k", b"%d-%d" % (self.tick, i)) for i in range(count)]
            partition.appends.append(build_batch(records), now_ms=NOW_MS)
            number = self.tick
            until = Until(replicated=True, patience_ms=2_000 if by_all else 0)
            self.turn.add(partition, lambda error, number=number: self.note(key, number, error), until)

    def note(self, key, number, error):
        self.settled.append((key, number, None if error is None else error.code))

    def delete_records(self, key):
        partition = self.partitions[key]
        partition.retention.delete_records(partition.high_watermark)

    def pause_disk(self, key, is_paused):
        availability = self.partitions[key].availability
        if is_paused and self.partitions[key].is_available:
            availability.pause("its disk is slow")
        elif not is_paused and not self.partitions[key].is_available:
            availability.resume()

    def answer_changes(self, is_accepted):
        changes, self.altering.changes = self.altering.changes, []
        for change in changes:
            if is_accepted and change.partition_epoch == self.views[change.key].partition_epoch:
                isr = tuple(node_id for node_id, _ in change.new_isr)
                view = self.views[change.key]
                self.views[change.key] = view._replace(isr=isr, partition_epoch=view.partition_epoch + 1)
                self.view = self.published()
                self.leading.altered(change, AlteredIsr(view.leader_epoch, view.partition_epoch + 1, isr))
            else:
                self.leading.altered(change, ErrorCode.INELIGIBLE_REPLICA)

    # What has become of it

    def outcome(self):
        leaders = {}
        for key, leader in self.leading.leaders.items():
            followers = {
                node_id: (one.log_end_offset, one.log_start_offset, one.broker_epoch)
                for node_id, one in leader.followers.items()
            }
            leaders[key] = (leader.leader_epoch, leader.in_sync, followers)
        logs = {
            key: (one.log_start_offset, one.high_watermark, one.log_end_offset)
            for key, one in self.partitions.items()
        }
        told = {node_id: one.told for node_id, one in self.followers.items()}
        fetches = dict(self.leadership.follower_fetches)
        return leaders, logs, told, sorted(self.settled), self.altering.changes, fetches


class Follower:
    """Asks for what it lacks, and believes what it is told."""

    def __init__(self, world, node_id):
        self.world = world
        self.id = node_id
        self.broker_epoch = 100 + node_id
        self.told = []
        """Its responses: by partition what each field says."""
        self.logs = dict.fromkeys(KEYS, b"")
        self.ends = dict.fromkeys(KEYS, 0)
        self.starts = dict.fromkeys(KEYS, 0)
        self.epochs = dict.fromkeys(KEYS, -1)
        self.wanted = set(KEYS)
        self.connect()

    def connect(self):
        self.wire = Wire(self.world.connections)
        self.session = ReplicaFetchSession()
        self.read = 0
        self.is_waiting = False
        self.correlation_id = 0

    def leave(self):
        self.wire.connection.connection_lost(None)
        self.connect()

    def ask(self, **fields):
        """Sends the next request, unless one is under way."""
        if self.is_waiting:
            return
        changes = {}
        for key in KEYS:
            partition = FetchPartition(
                partition=key[1],
                current_leader_epoch=self.world.views[key].leader_epoch,
                fetch_offset=self.ends[key],
                last_fetched_epoch=self.epochs[key],
                log_start_offset=self.starts[key],
                partition_max_bytes=PLENTY,
                high_watermark=0,
            )
            place = TOPICS[key[0]], key[1]
            asked = Asked("", partition) if key in self.wanted else None
            if self.session.asked.get(place) != asked:
                changes[place] = asked
        part = self.session.next_part(changes)
        if part is None:
            return
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.id, replica_epoch=self.broker_epoch),
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self.world.max_bytes,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
            **fields,
        )
        self.correlation_id += 1
        self.is_waiting = True
        self.wire.send(request_frame(request, VERSION, self.correlation_id, f"broker-{self.id}"))

    def take(self):
        """Reads the response, if there is one."""
        frames = self.wire.frames
        if len(frames) == self.read:
            return
        (frame,) = frames[self.read :]
        self.read += 1
        correlation_id, response = read_response(memoryview(frame)[4:], FetchResponse, VERSION)
        assert correlation_id == self.correlation_id
        self.is_waiting = False
        if not self.session.answered(response.error_code, response.session_id):
            self.told.append(response.error_code)
            return
        found = {}
        for topic in response.responses:
            for data in topic.partitions:
                key = NAMES[topic.topic_id], data.partition_index
                assert key not in found
                found[key] = self.judge(key, data)
        self.told.append(dict(sorted(found.items())))

    def judge(self, key, data):
        records = bytes(data.records or b"")
        diverging = data.diverging_epoch
        if diverging is not None:
            self.ends[key] = min(self.ends[key], diverging.end_offset)
            self.epochs[key] = min(self.epochs[key], diverging.epoch)
        elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.ends[key] = self.world.partitions[key].log_start_offset
            self.epochs[key] = -1
        elif not data.error_code:
            for batch, header in iter_whole_batches(records):
                self.logs[key] += bytes(batch)
                assert header.base_offset >= self.ends[key] or header.last_offset >= self.ends[key]
                self.ends[key] = header.last_offset + 1
                self.epochs[key] = header.leader_epoch
            self.starts[key] = max(self.starts[key], min(data.log_start_offset, self.ends[key]))
        return (
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            None if diverging is None else (diverging.epoch, diverging.end_offset),
            data.aborted_transactions,
            data.preferred_read_replica,
            data.current_leader,
            records,
        )
