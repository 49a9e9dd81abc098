"""A scrape of many series lets the event loop go on: no turn of it makes more than 500 samples.

Scrapes at the same time are one.
"""

import asyncio
from collections import Counter

from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.config.broker_config import load
from odradek.embedding.free_port import free_port
from odradek.server.broker import BrokerServer
from odradek.server.metrics import endpoint, exposition
from tests.server.scrape import scraped

PARTITIONS = 1_500
FAMILIES_OF_PARTITIONS = 13
COMMITS = 1_500
SAMPLES_IN_A_TURN_MAX = 500


def fill(address):
    with Cluster(ClientSettings(address)) as cluster:
        create_topic(cluster, "many", PARTITIONS, {})
        commit(cluster, "readers", {("many", index): (0, "") for index in range(COMMITS)})


async def with_many_series(directory, act):
    """What the act returns, which gets a broker that runs."""
    metrics = f"127.0.0.1:{free_port()}"
    config = load(listen="127.0.0.1:0", data_dir=directory, keywords={"odradek_metrics_listen": metrics})
    server = BrokerServer(config)
    try:
        await server.start()
        await asyncio.to_thread(fill, f"127.0.0.1:{server.port}")
        return await act(server)
    finally:
        await server.stop()


def test_no_turn_of_the_loop_makes_more_than_500_samples(tmp_path, monkeypatch):
    turn = 0
    made = Counter()

    def watched(samples):
        for piece in exposition.pieces(samples):
            made[turn] += sum(not line.startswith("#") for line in piece.splitlines())
            yield piece

    def tick():
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(tick)

    monkeypatch.setattr(endpoint, "pieces", watched)

    async def act(server):
        tick()
        return await asyncio.to_thread(scraped, server.metrics_port)

    found = asyncio.run(with_many_series(tmp_path, act))
    of_topic = sum('topic="many",partition=' in (labels or "") for _, labels in found)
    assert of_topic == PARTITIONS * FAMILIES_OF_PARTITIONS + 2 * COMMITS > 20_000
    assert sum(made.values()) == len(found)
    assert max(made.values()) <= SAMPLES_IN_A_TURN_MAX


def test_scrapes_at_the_same_time_are_one(tmp_path, monkeypatch):
    begun = []

    def counted(samples):
        begun.append(samples)
        yield from exposition.pieces(samples)

    monkeypatch.setattr(endpoint, "pieces", counted)

    async def scrape(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async def act(server):
        at_once = await asyncio.gather(*(scrape(server.metrics_port) for _ in range(8)))
        return at_once, await scrape(server.metrics_port)

    at_once, later = asyncio.run(with_many_series(tmp_path, act))
    assert len(set(at_once)) == 1
    assert later not in at_once
    assert len(begun) == 2
