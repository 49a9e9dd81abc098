"""A node without sockets: real logs in a temporary directory, the real machines, a clock that we turn."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os

import pytest

from odradek.apis.access import ALLOW_ALL
from odradek.apis.api import RequestContext, Waiting
from odradek.apis.coordinators import NoDeadLetters
from odradek.apis.leadership import Leadership
from odradek.apis.node import ApiSettings, NodeParts
from odradek.apis.table import Apis
from odradek.apis.write_txn_markers import MarkerWriter
from odradek.config.options import (
    BrokerLayers,
    broker_values,
    check_group_configs,
    check_topic_configs,
    parse_broker_configs,
    topic_defaults,
    topic_values,
)
from odradek.coordinator.cluster.changes import ConfigChange, TopicDefaults
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.features import FEATURES
from odradek.coordinator.cluster.producer_ids import ProducerIds
from odradek.coordinator.cluster.publishing import NodeLogs
from odradek.coordinator.cluster.topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    SHARE_STATE_TOPIC_CONFIGS,
    TRANSACTIONS_TOPIC,
    TRANSACTIONS_TOPIC_CONFIGS,
    NewTopic,
)
from odradek.coordinator.cluster.view import (
    Broker,
    Endpoint,
)
from odradek.coordinator.controller.alone import LoneController
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.coordinator.controller.records import broker_record
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.shares.state.coordinator import ShareCoordinator
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.coordinator.transactions.coordinator import TransactionCoordinator
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.server.coordination.coordinator_log import PartitionLog
from odradek.server.security.authorizer import StandardAuthorizer
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk, OsFile
from odradek.storage.log.slices import Slice
from odradek.wire.codec import decode_message, encode_message, encoder
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import FeatureLevelRecord, KRaftVersionRecord
from odradek.wire.records import build_batch
from odradek.wire.work import finish
from tests.coordinator.memory_metadata_log import MemoryMetadataLog

LEVEL = 33
NODE_ID = 1
START_MS = 1_700_000_000_000


class QuickFile(OsFile):
    """A real file whose syncs cost nothing: nobody pulls the plug here."""

    def sync(self):
        pass


class QuickDisk(OsDisk):
    def open(self, path, *, create=False):
        return QuickFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def sync_directory(self, path):
        pass


class FakeConnection:
    """What a handler may know of a connection; remembers that it was closed."""

    def __init__(self):
        self.peer_host = "192.0.2.7"
        self.peer_port = 50_000
        self.local_host = "127.0.0.1"
        self.local_port = 9092
        self.advertised_host = "broker.example"
        self.advertised_port = 19092
        self.listener_name = "PLAINTEXT"
        self.principal = "User:ANONYMOUS"
        self.granted = None
        self.is_token = False
        self.client_software_name = self.client_software_version = "unknown"
        self.closed = None
        self.closings = {}

    def when_closed(self, callback):
        self.closings[callback] = None

    def begin_reauthentication(self, mechanism, version):
        return None

    def close(self, reason):
        self.closed = reason


class FakeTimer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None


class FakeLoop:
    """Timers and the end of a turn, on a clock that moves only when told."""

    def __init__(self):
        self.now_ms = START_MS
        self._heap = []
        self._number = itertools.count()
        self._staged = {}
        self.flushes = 0

    def after(self, delay_ms, callback):
        timer = FakeTimer(callback)
        heapq.heappush(self._heap, (self.now_ms + max(delay_ms, 0), next(self._number), timer))
        return timer

    def call_later(self, delay_s, callback, *arguments):
        return self.after(round(delay_s * 1000), lambda: callback(*arguments))

    def call_soon(self, callback, *arguments):
        return self.call_later(0, callback, *arguments)

    def run(self, work, done, failed):
        """Work that takes no time; a bug in it is the test's."""
        done(finish(work))

    def add(self, partition, done, until):
        self._staged.setdefault(partition, []).append((done, until))

    def turn(self):
        """Commits what was staged, then runs what is due; until nothing is left to do now."""
        while self._staged or (self._heap and self._heap[0][0] <= self.now_ms):
            staged, self._staged = self._staged, {}
            for partition, waiting in staged.items():
                self._commit(partition, waiting)
            if self._heap and self._heap[0][0] <= self.now_ms:
                timer = heapq.heappop(self._heap)[2]
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    callback()

    def _commit(self, partition, waiting):
        error = None
        try:
            partition.commit()
            if any(until.flushed for _, until in waiting):
                self.flushes += 1
                partition.flush()
        except KafkaError as refused:
            error = refused
        for done, until in waiting:
            if error is None and until.replicated:
                partition.when_high_watermark(partition.log_end_offset, done)
            else:
                done(error)

    def advance(self, delay_ms):
        """Lets time pass, timer by timer."""
        end = self.now_ms + delay_ms
        while self._heap and self._heap[0][0] <= end:
            self.now_ms = max(self.now_ms, self._heap[0][0])
            self.turn()
        self.now_ms = end
        self.turn()

    @property
    def pending_timers(self):
        return sum(timer.callback is not None for _, _, timer in self._heap)


class MetadataLog(MemoryMetadataLog):
    """Log of a cluster of the newest level; `failure` makes it refuse."""

    leader_epoch = 1
    directory_id = bytes(15) + b"\7"

    def __init__(self):
        super().__init__(KRaftVersionRecord(version=0, kraft_version=1))
        self.failure = None
        self.append([FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)], LEVEL)

    def appending(self, records, metadata_version):
        if self.failure is not None:
            raise self.failure
        return (yield from super().appending(records, metadata_version))


class Machine(LoneController):
    def register_broker(self, broker):
        """One that is not this node."""
        record = broker_record(broker, LEVEL)
        finish(self.changing(at_once(lambda draft: draft.add_records([record]))))


class FailingLog(PartitionLog):
    """The log under a coordinator, on a real partition; appends fail with `failure` while there is one."""

    failure = None

    @property
    def records(self):
        return list(self.read_all())

    def append(self, records, then, producer=None):
        if self.failure is None:
            super().append(records, then, producer)
        else:
            self._loop.call_soon(then, self.failure)

    def append_marker(self, marker, then):
        if self.failure is None:
            super().append_marker(marker, then)
        else:
            self._loop.call_soon(then, self.failure)


class Answer:
    """An answer that may come later: `response` is None until then. Decoded, as the client sees it."""

    def __init__(self, api, version, result):
        self.result = result
        self.response = None
        self.was_sent = False
        self._api, self._version = api, version
        if isinstance(result, Waiting):
            result.on_complete(self._take)
        elif result is not None:
            self._take(result)

    def _take(self, response):
        if response is None:
            return  # it was not expected
        self.was_sent = True
        parts = []
        encoder(self._api.response, self._version)(response, parts)
        body = b"".join(part.tobytes() if isinstance(part, Slice) else part for part in parts)
        self.response = decode_message(self._api.response, self._version, body)

    def cancel(self):
        self.result.cancel()


class StoreLogs(NodeLogs):
    """Only settings reach the logs by themselves; the node's subscriber makes and deletes partitions."""

    def __init__(self, node):
        self.node = node

    def apply_configs(self, change):
        for topic in change.configured:
            config = LogConfig.from_mapping(topic_values(topic.configs, self.node._defaults))
            for partition in topic.partitions:
                self.node.store.get(topic.name, partition.index).set_config(config)
            yield None


class Node:
    """The handlers of one broker and all that is under them."""

    def __init__(
        self,
        directory,
        *,
        configs=None,
        directories=None,
        conversions=None,
        policy=None,
        persister=None,
        dead_letters=None,
        **options,
    ):
        """With a `policy` there is an authorizer; `persister` keeps the states of share partitions, and
        `dead_letters` their dead letter queues."""
        self.persister = persister
        self.loop = FakeLoop()
        self.connection = FakeConnection()
        self.authorizer = ALLOW_ALL
        if policy is not None:
            self.authorizer = StandardAuthorizer(policy, lambda: self.machine.view, self._now_ms)
        self.start_configs = dict(configs or {})
        self._defaults = topic_defaults(broker_values(BrokerLayers(start=self.start_configs)))
        self.store = LogStore(QuickDisk(), directories or [str(directory)])
        self.store.open(self.loop.now_ms)
        # The registration takes 0, topics the others.
        ids = itertools.count(0)
        self.metadata = MetadataLog()
        self.machine = Machine(
            self.metadata,
            node_id=NODE_ID,
            cluster_id="test-cluster",
            new_id=lambda: next(ids).to_bytes(16, "big"),
            defaults=TopicDefaults(partition_count=1, replication_factor=1),
            check_topic_configs=lambda name, overrides: check_topic_configs(overrides, self._defaults),
            check_broker_configs=lambda owner, overrides: parse_broker_configs(
                overrides, for_all_brokers=not owner
            ),
            check_group_configs=lambda group_id, overrides: check_group_configs(
                overrides, broker_values(BrokerLayers(start=self.start_configs))
            ),
        )
        self.machine.publisher.logs = StoreLogs(self)
        self.machine.load()
        self.machine.publisher.subscribe(self._view_changed)
        self.machine.register(
            Broker(
                NODE_ID,
                {"PLAINTEXT": Endpoint("registered.example", 9092)},
                features={name: (one.lowest, one.highest) for name, one in FEATURES.items()},
            ),
            lambda: PartitionDefaults(node_id=NODE_ID),
        )
        self.leadership = Leadership(lambda: self.machine.view, self.store, NODE_ID)
        self.group_logs = {}
        self.transaction_logs = {}
        self.group_settings = GroupSettings(
            group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=5, share_version=1
        )
        self.transaction_settings = TransactionSettings(transaction_topic_num_partitions=3)
        self.share_logs = {}
        self.share_settings = ShareStateSettings(topic_num_partitions=3)
        self.new_producer_id = ProducerIds(self.machine.allocate_producer_ids).next
        self.log_ends = None
        self.groups = self._new_groups()
        self.transactions = self._new_transactions()
        self.shares = self._new_shares()
        for coordinator in (self.groups, self.transactions, self.shares):
            self.machine.publisher.subscribe(lambda view, change, told=coordinator: told.view_changed(view))
            coordinator.view_changed(self.machine.view)
        parts = NodeParts(
            node_id=NODE_ID,
            plane=self.machine,
            metadata_log=self.metadata,
            store=self.store,
            leadership=self.leadership,
            groups=lambda: self.groups,
            transactions=lambda: self.transactions,
            shares=lambda: self.shares,
            log_ends=lambda: self.log_ends,
            dead_letters=NoDeadLetters if dead_letters is None else lambda: dead_letters,
            new_producer_id=self.new_producer_id,
            now_ms=self._now_ms,
            turn=self.loop,
            timers=self.loop,
            clock_timers=self.loop,
            changes=self.loop,
            searches=self.loop,
            reads=self.loop,
            conversions=self.loop if conversions is None else conversions,
            saves=self.loop,
            authorizer=self.authorizer,
            clock_ms=self._now_ms,
            subscribe=self.machine.publisher.subscribe,
        )
        self.client_metrics = parts.client_metrics
        self.apis = self._build(
            parts,
            ApiSettings(
                start_configs=self.start_configs,
                internal_topics=(
                    NewTopic(OFFSETS_TOPIC, 5, 1, configs={"cleanup.policy": "compact"}),
                    NewTopic(TRANSACTIONS_TOPIC, 3, 1, configs=TRANSACTIONS_TOPIC_CONFIGS),
                    NewTopic(SHARE_STATE_TOPIC, 3, 1, configs=SHARE_STATE_TOPIC_CONFIGS),
                ),
                **options,
            ),
        )

    def _build(self, parts, settings):
        self.parts, self.api_settings = parts, settings
        return Apis(parts, settings)

    def _new_groups(self):
        suffixes = itertools.count(1)
        return GroupCoordinator(
            node_id=NODE_ID,
            settings=self.group_settings,
            open_log=lambda index: self._open_log(OFFSETS_TOPIC, self.group_logs, index),
            clock_ms=self._now_ms,
            call_later=self.loop.call_later,
            new_member_suffix=lambda: f"{next(suffixes):04d}",
            persister=lambda: self.persister,
        )

    def _new_transactions(self):
        markers = MarkerWriter(self.leadership, self.groups, self.loop, self.loop, self._now_ms)
        return TransactionCoordinator(
            node_id=NODE_ID,
            settings=self.transaction_settings,
            open_log=lambda index: self._open_log(TRANSACTIONS_TOPIC, self.transaction_logs, index),
            new_producer_id=self.new_producer_id,
            write_markers=lambda effect, then: markers.write(effect.marker, effect.partitions, then),
            clock_ms=self._now_ms,
            call_later=self.loop.call_later,
        )

    def _new_shares(self):
        return ShareCoordinator(
            node_id=NODE_ID,
            settings=self.share_settings,
            open_log=lambda index: self._open_log(SHARE_STATE_TOPIC, self.share_logs, index),
            clock_ms=self._now_ms,
            call_later=self.loop.call_later,
        )

    def _now_ms(self):
        return int(self.loop.now_ms)

    def _open_log(self, topic, logs, index):
        partition = self.store.get(topic, index)
        if partition is None:
            return None
        return logs.setdefault(index, FailingLog(partition, self.loop, self._now_ms, self.loop))

    def _view_changed(self, view, change):
        for topic, partition in change.created:
            config = LogConfig.from_mapping(topic_values(topic.configs, self._defaults))
            self.store.create(
                topic.name, partition.index, topic.topic_id, config, leader_epoch=partition.leader_epoch
            )
        for topic in change.deleted:
            for partition in topic.partitions:
                self.store.delete(topic.name, partition.index)

    def set_configs(self, owner, configs):
        """Replaces the overrides of a topic, a broker, or (None) all brokers."""
        assert finish(self.machine.changing_configs([ConfigChange(owner, lambda _: configs)])) == [None]

    def start(self, request, version=None, *, client_id="tester", connection=None):
        """Gives a request to its handler, by way of its bytes; nothing is committed yet."""
        key = request.api_key
        api = self.apis[key].api
        version = api.versions[-1] if version is None else version
        assert version in api.versions
        return Answer(api, version, self._handle(request, version, client_id, connection))

    def _handle(self, request, version, client_id="tester", connection=None):
        key = request.api_key
        served = self.apis[key]
        decoded = decode_message(served.api.request, version, encode_message(request, version))
        connection = connection or self.connection
        refused = self.authorizer.refused(connection, served.api.needs, decoded)
        context = RequestContext(
            key, version, 7, client_id, connection, self.loop.now_ms, refused, self.authorizer
        )
        if refused:
            return served.handle_refused(decoded, context)
        return served.handle(decoded, context)

    def before_encoding(self, request, version):
        """The answer to a request that is answered at once, as its handler gives it to the connection."""
        result = self._handle(request, version)
        responses = []
        if not isinstance(result, Waiting):
            return result
        result.on_complete(responses.append)
        return responses[0]

    def ask(self, request, version=None, **arguments):
        """The answer to a request that is answered in its own turn."""
        answer = self.start(request, version, **arguments)
        self.loop.turn()
        assert answer.was_sent, "the answer has not come"
        return answer.response

    def create(self, name, partition_count=1, **configs):
        """Makes a topic; settings with underscores for dots."""
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        (result,) = self.machine.create_topics([NewTopic(name, partition_count, 1, configs=texts)])
        assert result.error is None, result.error
        return result.topic

    def partition(self, name, index=0):
        return self.store.get(name, index)

    def fill(self, name, *batches, index=0):
        """Appends batches of values to a partition, committed."""
        log = self.partition(name, index)
        for values in batches:
            log.appends.append(self.batch(*values), now_ms=self.loop.now_ms)
        log.commit()
        return log

    def batch(self, *values, timestamp=None, **arguments):
        """One v2 batch with these values."""
        timestamp = self.loop.now_ms if timestamp is None else timestamp
        return build_batch(
            [(offset, timestamp, None, value, ()) for offset, value in enumerate(values)], **arguments
        )


@contextlib.contextmanager
def opened(directory, **options):
    node = Node(directory, **options)
    try:
        yield node
    finally:
        node.store.close(node.loop.now_ms)


@pytest.fixture
def short_lived(tmp_path):
    """Makes nodes for the cases of a loop, `with short_lived() as node`: not all have files open at once."""
    numbers = itertools.count()
    return lambda **options: opened(tmp_path / f"data{next(numbers)}", **options)


@pytest.fixture
def make_node(short_lived):
    """Makes nodes; options go to `Node`."""
    with contextlib.ExitStack() as nodes:
        yield lambda **options: nodes.enter_context(short_lived(**options))


@pytest.fixture
def node(make_node):
    return make_node()
