"""States of share partitions on a whole broker: asked through the persister, killed, and cut.

A kill is a copy of the data directory of a broker that runs: what another broker finds there is what
`kill -9` would have left.
"""

import asyncio
import contextlib
import itertools
import time

import pytest

from odradek.config.broker_config import load
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.shares.state.persister import (
    DeliveryState,
    InitialState,
    Refusal,
    SharePartitionKey,
)
from odradek.server.broker import BrokerServer
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.coordinator.shares.share_state_requests import batches_in, change, state_batch
from tests.raw_client import AsyncRawClient

PATIENCE_S = 20
DONE = Refusal(ErrorCode.NONE)


@contextlib.asynccontextmanager
async def running(directory, **options):
    keywords = {f"share_coordinator_{name}": value for name, value in options.items()}
    keywords.setdefault("share_coordinator_state_topic_num_partitions", 3)
    server = BrokerServer(load(listen="127.0.0.1:0", data_dir=directory, keywords=keywords))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        await asyncio.sleep(0.01)


async def create_topic(server, name="t", partitions=4):
    client = await AsyncRawClient.connect(server.port)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert answer.topics[0].error_code == 0
    client.close()
    return answer.topics[0].topic_id


def coordinators(server):
    return server.coordinators


async def asked(ask, *arguments):
    """What the persister calls back with."""
    future = asyncio.get_running_loop().create_future()
    ask(*arguments, future.set_result)
    async with asyncio.timeout(PATIENCE_S):
        return await future


def persister(server):
    return coordinators(server).persister


def write(key, start_offset, *batches, done=-1):
    """The arguments of the persister."""
    return key, change(key, 0, 0, start_offset, done, batches)


def test_the_persister_creates_the_topic_and_asks_the_coordinator_of_its_node(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            topic_id = await create_topic(server)
            keys = [SharePartitionKey("g", topic_id, index) for index in range(4)]
            states = [InitialState(key, 0, 10) for key in keys]
            assert await asked(persister(server).initialize, states) == dict.fromkeys(keys, DONE)
            topic = server.cluster_view.topics[SHARE_STATE_TOPIC]
            assert (topic.is_internal, topic.configs["retention.ms"]) == (True, "-1")
            batch = state_batch(10, 19, DeliveryState.ACKNOWLEDGED, 1)
            written = write(keys[0], 10, batch, done=10)
            assert await asked(persister(server).write, *written) == DONE
            state = await asked(persister(server).read, keys[0], 5)
            assert (state.error_code, state.state_epoch, state.start_offset) == (0, 0, 10)
            assert batches_in(state) == [(10, 19, 1, DeliveryState.ACKNOWLEDGED)]
            fenced = await asked(persister(server).write, *written)
            assert fenced.error_code is ErrorCode.FENCED_LEADER_EPOCH
            fenced = await asked(persister(server).read, keys[0], 4)
            assert fenced.error_code is ErrorCode.FENCED_LEADER_EPOCH
            summaries = await asked(persister(server).summaries, {keys[0]: 5, keys[1]: -1})
            assert summaries[keys[0]].delivery_complete_count == 10
            assert (summaries[keys[0]].leader_epoch, summaries[keys[1]].start_offset) == (5, 10)
            assert await asked(persister(server).delete, keys[:2]) == dict.fromkeys(keys[:2], DONE)
            summaries = await asked(persister(server).summaries, dict.fromkeys(keys, -1))
            assert [one.start_offset for one in summaries.values()] == [-1, -1, 10, 10]
            assert await asked(persister(server).initialize, []) == {}
            assert persister(server).pending_count == 0

    asyncio.run(act())


@pytest.mark.parametrize("seed", range(3))
def test_no_answered_write_is_lost_when_the_broker_is_killed(tmp_path, seed):
    """Writers go on while the directory is copied; a copy has what was answered before it began."""

    async def act():
        answered: dict[SharePartitionKey, int] = {}
        copies = []
        async with running(tmp_path / "killed", snapshot_update_records_per_snapshot=seed * 5) as server:
            topic_id = await create_topic(server)
            keys = [SharePartitionKey(f"g{number}", topic_id, number % 4) for number in range(3)]
            results = await asked(persister(server).initialize, [InitialState(key, 0, 0) for key in keys])
            assert results == dict.fromkeys(keys, DONE)
            answered |= dict.fromkeys(keys, 0)

            is_killed = False

            async def go_on(key):
                for start_offset in itertools.count(1):
                    if is_killed:
                        return
                    batch = state_batch(start_offset, start_offset + 9, DeliveryState.AVAILABLE, 1)
                    assert await asked(persister(server).write, *write(key, start_offset, batch)) == DONE
                    answered[key] = start_offset

            writers = [asyncio.ensure_future(go_on(key)) for key in keys]
            for number in range(3):
                least = 20 * (number + 1) + seed
                await until(lambda least=least: min(answered.values()) >= least)
                before = dict(answered)
                copy = tmp_path / f"copy-{number}"
                copying = await asyncio.create_subprocess_exec("cp", "-r", tmp_path / "killed", copy)
                assert await copying.wait() == 0
                copies.append((copy, before))
            is_killed = True
            await asyncio.gather(*writers)
        for copy, before in copies:
            async with running(copy) as server:
                for key, start_offset in before.items():
                    state = await asked(persister(server).read, key, 1)
                    assert state.error_code is ErrorCode.NONE
                    assert state.start_offset >= start_offset
                    last = state.start_offset + 9
                    assert batches_in(state) == [(state.start_offset, last, 1, DeliveryState.AVAILABLE)]

    asyncio.run(act())


def test_the_log_is_cut_before_what_is_needed_and_the_states_survive(tmp_path):
    async def act():
        options = {
            "state_topic_num_partitions": 1,
            "state_topic_prune_interval_ms": 20,
            "cold_partition_snapshot_interval_ms": 10,
        }
        async with running(tmp_path, **options) as server:
            topic_id = await create_topic(server)
            keys = [SharePartitionKey("g", topic_id, index) for index in range(4)]
            await asked(persister(server).initialize, [InitialState(key, 0, 0) for key in keys])
            for start_offset in range(1, 20):
                assert await asked(persister(server).write, *write(keys[0], start_offset)) == DONE
            log = server.store.get(SHARE_STATE_TOPIC, 0)
            await until(lambda: log.log_start_offset >= 23)
            end = log.log_end_offset
            assert log.log_start_offset <= end - 4
        async with running(tmp_path, **options) as server:
            summaries = await asked(persister(server).summaries, dict.fromkeys(keys, -1))
            assert [one.start_offset for one in summaries.values()] == [19, 0, 0, 0]

    asyncio.run(act())


def test_the_states_of_a_deleted_topic_are_forgotten(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            ids = [await create_topic(server, name) for name in ("t", "u")]
            keys = [SharePartitionKey("g", topic_id, 0) for topic_id in ids]
            await asked(persister(server).initialize, [InitialState(key, 0, 0) for key in keys])
            client = await AsyncRawClient.connect(server.port)
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
            assert (await client.ask(request, 6)).responses[0].error_code == 0
            client.close()

            def kept():
                partitions = coordinators(server).shares().partitions.values()
                return {key for one in partitions if one.machine for key in one.machine.states}

            await until(lambda: kept() == {keys[1]})
        async with running(tmp_path) as server:
            await until(lambda: coordinators(server).shares.is_made)
            await until(lambda: not coordinators(server).shares().is_loading)
            assert kept() == {keys[1]}

    asyncio.run(act())
