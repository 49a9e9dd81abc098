"""Room for large responses: so many bytes at once, or one that is larger; and all of it again afterwards."""

import threading

import pytest

from odradek.client.admin.topics import create_topic
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings
from odradek.console.memory import Memory
from odradek.console.workers import Busy

DEADLINE_S = 30


def taken(memory, hold, *sizes):
    with hold.used():
        for size in sizes:
            memory.take(size)


def test_there_is_room_for_so_many_bytes():
    memory = Memory(100, 10, 0)
    with memory.held() as one, memory.held() as other:
        taken(memory, one, 60)
        with pytest.raises(Busy, match="try again"):
            taken(memory, other, 41)
        taken(memory, other, 40)
    with memory.held() as third:
        taken(memory, third, 100)


def test_one_that_is_larger_than_all_is_alone():
    memory = Memory(100, 10, 0)
    with memory.held() as one, memory.held() as other:
        taken(memory, one, 500)
        with pytest.raises(Busy):
            taken(memory, other, 10)
        one.give_back()
        taken(memory, other, 10)
        with pytest.raises(Busy):
            taken(memory, one, 500)


def test_a_page_has_the_room_of_its_largest_response_and_small_ones_need_none():
    memory = Memory(100, 10, 0)
    with memory.held() as one, memory.held() as other:
        taken(memory, one, 30, 50, 20, 50)
        taken(memory, other, 50)
        taken(memory, other, 9)
        with pytest.raises(Busy):
            taken(memory, one, 51)


def test_responses_of_no_page_need_no_room():
    memory = Memory(100, 10, 0)
    with memory.held() as hold:
        taken(memory, hold, 100)
        memory.take(100)


def test_who_waits_gets_room_as_soon_as_there_is_some():
    memory = Memory(100, 10, DEADLINE_S)
    done = threading.Event()

    def wait():
        with memory.held() as hold:
            taken(memory, hold, 100)
            done.set()

    with memory.held() as hold:
        taken(memory, hold, 100)
        thread = threading.Thread(target=wait)
        thread.start()
        assert not done.wait(0.05)
    assert done.wait(DEADLINE_S)
    thread.join()
    assert memory.taken_bytes == 0


def test_a_refused_response_ends_its_connection_and_the_cluster_goes_on(broker):
    """The bytes of the refused response would be read as the next one."""
    refusals = []

    def room(size_bytes):
        if refusals:
            raise refusals.pop()

    with Cluster(ClientSettings(broker.bootstrap_servers, room=room)) as cluster:
        create_topic(cluster, "roomy", 1, {})
        end = cluster.list_offsets({("roomy", 0): LATEST})
        refusals.append(Busy("no room"))
        with pytest.raises(Busy):
            cluster.list_offsets({("roomy", 0): LATEST})
        assert cluster.list_offsets({("roomy", 0): LATEST}) == end
