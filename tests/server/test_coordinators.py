"""The coordinators of a node that no client asks: what others have left is taken up all the same."""

import asyncio
import itertools

import pytest

from odradek.apis.leadership import Leadership
from odradek.config.broker_config import load
from odradek.config.live import LiveConfig
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import ClusterChange, ClusterView
from odradek.coordinator.transactions.record_codec import encode_key, encode_value
from odradek.coordinator.transactions.state import Transaction, TransactionState
from odradek.server.coordination.coordinators import Coordinators
from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import Turn
from odradek.server.network.timers import ClockTimers
from odradek.storage.config import LogConfig
from odradek.storage.log.appends import Origin
from odradek.wire.end_marker import EndMarker
from odradek.wire.records import build_keyed_batch
from tests.coordinator.fakes import view_of
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, open_store

OURSELVES, OTHER = 1, 2
LEADER_EPOCH = 7
DECIDED = Transaction(
    producer_id=1_000,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({("t", 0)}),
    start_ms=NOW_MS,
    updated_ms=NOW_MS,
    client_version=2,
)


class Remote:
    """Where markers go to; nobody answers."""

    def __init__(self):
        self.markers = []

    def write(self, marker, partitions, write_here, then):
        self.markers.append((marker, list(partitions)))


class Node:
    """One of a cluster, with a replica of each topic that coordinators have; no handler asks it anything."""

    def __init__(self):
        self.view = ClusterView()
        self.store = open_store(MemoryDisk())
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC):
            self.store.create(topic, 0, bytes(16), LogConfig())
        self.remote = Remote()
        config = load(keywords={"node_id": OURSELVES})
        self.coordinators = Coordinators(
            config=config,
            live=LiveConfig(config, LogConfig.from_mapping),
            leadership=Leadership(lambda: self.view, self.store, OURSELVES),
            store=self.store,
            turn=Turn(asyncio.get_running_loop()),
            timers=None,
            clock_timers=ClockTimers(asyncio.get_running_loop(), Clock()),
            clock=Clock(lambda: NOW_MS),
            new_producer_id=itertools.count(2_000).__next__,
            searches=None,
            reads=None,
            conversions=None,
            saves=None,
            create_topic=lambda name, then: None,
            create_queue=lambda topic, then: None,
        )
        self.coordinators.remote_transactions = self.remote
        self.by_topic = {
            OFFSETS_TOPIC: self.coordinators.groups,
            TRANSACTIONS_TOPIC: self.coordinators.transactions,
            SHARE_STATE_TOPIC: self.coordinators.shares,
        }

    def replicate(self, transactional_id, transaction):
        """What the leader before has written."""
        record = encode_key(transactional_id), encode_value(transaction, 2), NOW_MS
        partition = self.store.get(TRANSACTIONS_TOPIC, 0)
        partition.appends.append(build_keyed_batch([record]), now_ms=NOW_MS, origin=Origin.COORDINATOR)
        partition.commit()

    def see(self, topic, leader):
        """A view where that node leads the topic's one partition."""
        self.view = view_of(topic, [leader], LEADER_EPOCH, {"t": 1})
        self.coordinators.follow(self.view, ClusterChange())

    def led(self, topic):
        """The partitions of the topic that are loaded here; None: nobody looks after them."""
        coordinator = self.by_topic[topic]
        if not coordinator.is_made:
            return None
        return [index for index, one in coordinator().partitions.items() if one.machine is not None]


def play(story):
    async def act():
        node = Node()
        story(node)
        node.coordinators.close()

    asyncio.run(act())


def test_a_decided_transaction_gets_its_markers_of_a_node_that_nobody_has_ever_asked():
    """The topic came after the start, and its producer, who has its answer, asks no coordinator any more."""

    def story(node):
        node.coordinators.load()
        node.see(TRANSACTIONS_TOPIC, OTHER)
        node.replicate("me", DECIDED)
        assert node.remote.markers == []
        node.see(TRANSACTIONS_TOPIC, OURSELVES)
        marker = EndMarker(1_000, 5, LEADER_EPOCH, commit=True, transaction_version=2)
        assert node.remote.markers == [(marker, [("t", 0)])]

    play(story)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC])
def test_a_topic_that_comes_after_the_start_is_loaded_where_it_is_led(topic):
    def story(node):
        node.coordinators.load()
        node.see("u", OURSELVES)
        assert node.led(topic) is None
        node.see(topic, OTHER)
        node.see(topic, OURSELVES)
        assert node.led(topic) == [0]

    play(story)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC])
def test_a_start_serves_clients_before_it_loads_what_coordinators_have(topic):
    def story(node):
        node.see(topic, OURSELVES)
        assert node.led(topic) is None
        node.coordinators.load()
        assert node.led(topic) == [0]

    play(story)
