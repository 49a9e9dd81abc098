"""A scrape of many series lets the event loop go on: no turn of it makes more than 500 samples."""

import asyncio
from collections import Counter

from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer
from odradek.server.free_port import free_port
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

    async def act():
        metrics = f"127.0.0.1:{free_port()}"
        config = load(listen="127.0.0.1:0", data_dir=tmp_path, keywords={"odradek_metrics_listen": metrics})
        server = BrokerServer(config)
        try:
            await server.start()
            await asyncio.to_thread(fill, f"127.0.0.1:{server.port}")
            tick()
            return await asyncio.to_thread(scraped, server.metrics_port)
        finally:
            await server.stop()

    found = asyncio.run(act())
    of_topic = sum('topic="many",partition=' in (labels or "") for _, labels in found)
    assert of_topic == PARTITIONS * FAMILIES_OF_PARTITIONS + 2 * COMMITS > 20_000
    assert sum(made.values()) == len(found)
    assert max(made.values()) <= SAMPLES_IN_A_TURN_MAX
