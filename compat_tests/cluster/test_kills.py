"""Nodes of a cluster are killed and paused under transactional and idempotent loads of three libraries; the
history is judged, and the logs of the replicas are compared.

ODRADEK_HISTORY_SEED, which is printed, repeats a run as far as processes can be repeated; `--kills` says how
often a node is killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.conftest import KILLS
from compat_tests.cluster.kills import Kills
from compat_tests.cluster.nodes import REPLICAS, Cluster, started
from compat_tests.kit.history import Outcome
from compat_tests.kit.topics import create_topics
from compat_tests.quorum import OdradekMember
from compat_tests.reference import SHOWN_LENGTH
from compat_tests.stories import topic_name
from compat_tests.transactions.checker import check, summary
from compat_tests.transactions.workload import Workload, a_seed, verdict
from tests.tiers import NIGHTLY

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka", *(["java"] * NIGHTLY))
KILLS_A_ROUND = 50
"""Then the history is judged, and another begins."""
PAUSE_SECONDS = 0.2 if NIGHTLY else 0.4


@pytest.fixture(scope="module", params=["odradek", *(["mixed"] * NIGHTLY)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with started(request.param) as running:
        yield running


def test_no_promise_is_broken_when_nodes_are_killed_and_paused(
    cluster: Cluster, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, left = a_seed(capsys), int(request.config.getoption("--kills", KILLS))
    while left > 0:
        count = min(left, KILLS_A_ROUND)
        told = a_round(cluster, seed, count)
        with capsys.disabled():
            print(told, flush=True)
        left, seed = left - count, seed + 1


def a_round(cluster: Cluster, seed: int, kills: int) -> str:
    """So many kills and one history. What there was to judge, in a line."""
    name = topic_name("kills")
    topics = {f"{name}-a": 2, f"{name}-b": 2, f"{name}-in": len(LIBRARIES)}
    create_topics(cluster.bootstrap, topics, REPLICAS)
    clients = Workload(
        cluster,
        seed,
        topics,
        libraries=LIBRARIES,
        workers_each=1,
        senders_each=1,
        uncommitted=[LIBRARIES[seed % len(LIBRARIES)]],
        pause_seconds=PAUSE_SECONDS,
        leaves_open=True,
    )
    nemesis = Kills(cluster, str(seed), clients.partitions, clients.workers)
    fenced_before = cluster.fenced_as_dead
    try:
        with clients as workload:
            wait_until(
                lambda: all(len(one.transactions) >= 2 for one in (*workload.workers, *workload.senders)),
                "transactions are running",
                seconds=120,
            )
            while nemesis.kills < kills or nemesis.planned:
                nemesis.strike()
                workload.raise_failure()
            cluster.wait_until_healthy()
            workload.go_on()
            history = workload.finish()
        assert not check(history), verdict(history)
        cluster.wait_until_logs_are_equal()
        assert cluster.fenced_as_dead - fenced_before <= nemesis.kills, "a node was fenced that lived"
    except BaseException as error:
        error.add_note(f"ODRADEK_HISTORY_SEED={seed}, {nemesis}:\n" + "\n".join(nemesis.told))
        for node_id, node in cluster.nodes.items():
            if isinstance(node, OdradekMember):
                error.add_note(f"the log of node {node_id} ended with:\n{node.log[-SHOWN_LENGTH:]}")
        raise
    committed = Counter(one.process for one in history.transactions if one.outcome is Outcome.COMMITTED)
    for client in (*workload.workers, *workload.senders):
        assert committed[client.name] >= kills / 4, f"{client.name} has done too little: {committed}"
    crashes = f"{len(workload.crashes())} processes crashed"
    return f"{summary(history)}; {nemesis}; {crashes}"
