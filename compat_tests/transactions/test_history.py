"""Histories of four client libraries under crashes, judged; and proof that the judge is no fool.

`make check-transactions` runs these. ODRADEK_HISTORY_SEED, which is printed, repeats a run as far as threads
can be repeated. The second test starts brokers with a bug planted in them (`planted/sitecustomize.py`) and
wants it found.

Java's client speaks version 2 of the protocol, the three others the one before, in which a transaction has no
number of its own: what a lost connection leaves behind in a broker, an EndTxn or a Produce, counts for the
producer's next transaction when it is served late (KAFKA-17754). Apache Kafka, which serves connections in
threads, shows that at times when the machine is busy; there it is told, and not held against it.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import struct
from collections import Counter
from typing import NamedTuple

import pytest

from compat_tests.clients import wait_until
from compat_tests.kit.history import Outcome
from compat_tests.kit.proxy import JudgingProxy, Verdict
from compat_tests.kit.topics import create_topics
from compat_tests.kit.transaction_brokers import Start, TransactionBroker, broken_by_kafka
from compat_tests.stories import topic_name
from compat_tests.transactions.checker import Kind, check, summary
from compat_tests.transactions.conftest import HISTORY_SECONDS, SHORT_HISTORY_SECONDS
from compat_tests.transactions.libraries import LIBRARIES, TIMEOUT_MS
from compat_tests.transactions.workload import Nemesis, Worker, Workload, a_seed, verdict
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

WORKERS_EACH = 2
VERSION_2 = {EndTxnRequest: 5, TxnOffsetCommitRequest: 5, ProduceRequest: 12}
"""The first versions of requests in which a client speaks version 2 of the protocol."""
PLANTED = pathlib.Path(__file__).with_name("planted")
PLANTED_TRANSACTIONS = 100
"""So many show each planted bug: on a quiet machine four seconds."""
PLANTED_STABLE_SECONDS = TIMEOUT_MS / 1000 + 3
COMMITS_BETWEEN_DEATHS = 20
KNOWN_OF_KAFKA = {
    Kind.ABORTED_READ,
    Kind.LOST_WRITE,
    Kind.TORN,
    Kind.OFFSETS_LOST,
    Kind.OFFSETS_ESCAPED,
    Kind.STUCK,
}
"""What late requests can do in the protocol before version 2; the first two and the last were seen."""


class Planted(NamedTuple):
    """What finds a bug."""

    kind: Kind
    """Of an anomaly that it must be found by."""
    library: str = "aiokafka"
    deaths: int = 0
    """Of a client in its commit: then nobody knows how that has ended."""


BUGS = {
    "commit-what-was-aborted": Planted(Kind.ABORTED_READ),
    "apply-offsets-at-once": Planted(Kind.OFFSETS_ESCAPED),
    "abort-what-was-committed": Planted(Kind.LOST_WRITE, "java"),
    "read-what-is-open": Planted(Kind.ABORTED_READ),
    "abort-nothing-that-timed-out": Planted(Kind.STUCK, "java"),
    "end-a-partition-the-other-way": Planted(Kind.TORN, "confluent-kafka", deaths=4),
}
IN_EVERY_RUN = (
    "commit-what-was-aborted",
    "apply-offsets-at-once",
    "abort-nothing-that-timed-out",
    "end-a-partition-the-other-way",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every bug where there is time for it."""
    if "bug" in metafunc.fixturenames:
        seconds = metafunc.config.getoption("--history-seconds", HISTORY_SECONDS)
        metafunc.parametrize("bug", BUGS if seconds > SHORT_HISTORY_SECONDS else IN_EVERY_RUN)


def new_topics(broker: TransactionBroker, workers: int) -> dict[str, int]:
    """Two topics that are written to and one for what is consumed, with a partition for each worker."""
    name = topic_name("history")
    topics = {f"{name}-a": 2, f"{name}-b": 3, f"{name}-in": workers}
    create_topics(broker.bootstrap, topics)
    return topics


def test_no_promise_is_broken_when_the_broker_is_killed_and_connections_are_lost(
    is_odradek: bool, start_broker: Start, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = request.config.getoption("--history-seconds", HISTORY_SECONDS)
    seed = a_seed(capsys)
    broker = start_broker(proxied=True)
    topics = new_topics(broker, WORKERS_EACH * len(LIBRARIES))
    clients = Workload(broker, seed, topics, workers_each=WORKERS_EACH, leaves_open=True)
    nemesis = Nemesis(broker, seed, clients.workers)
    with clients as workload:
        wait_until(
            lambda: all(len(worker.transactions) >= 2 for worker in workload.workers),
            "transactions are running",
        )
        with broken_by_kafka(broker):
            workload.run(seconds, nemesis.strike)
            workload.go_on()
            history = workload.finish()
    with capsys.disabled():
        print(f"{summary(history)}; {nemesis}; {len(workload.crashes())} processes crashed", flush=True)
        print("\n".join(workload.crashes()), flush=True)
    kinds = {anomaly.kind for anomaly in check(history)}
    if kinds and kinds <= KNOWN_OF_KAFKA and not is_odradek:
        pytest.xfail(verdict(history))
    assert not kinds, verdict(history)
    struck = (nemesis.kills, nemesis.cuts, nemesis.losses, nemesis.pauses, nemesis.stalls)
    assert all(struck), f"something has never happened to it: {nemesis}"
    committed = Counter(one.process for one in history.transactions if one.outcome is Outcome.COMMITTED)
    assert committed.total() >= 30
    assert min(committed[worker.name] for worker in workload.workers) >= 2, committed
    for request, version in VERSION_2.items():
        spoken = nemesis.versions[request.api_key]
        assert min(spoken) < version <= max(spoken), f"{request.__name__}: {sorted(spoken)}"


def test_a_library_that_ends_its_process_is_told_and_the_history_goes_on(
    start_broker: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(proxied=True)
    topics = new_topics(broker, 2)
    with Workload(broker, a_seed(capsys), topics, libraries=["confluent-kafka"]) as workload:
        reader = workload.readers[0]
        wait_until(lambda: workload.count() >= 4 and reader.reads, "transactions are running and read")
        reader.kill(signal.SIGABRT)
        die_in_commits(broker.proxy, workload, 2)
        workload.go_on()
        history = workload.finish()
    told = [crash.split(":")[0] for crash in workload.crashes()]
    assert told.count(f"{reader.name} was ended by SIGABRT") == 1
    assert {name.removesuffix(" was ended by SIGABRT") for name in told} <= {
        one.name for one in (reader, *workload.workers)
    }
    outcomes = Counter(one.outcome for one in history.transactions)
    assert outcomes[Outcome.UNKNOWN] >= 2, verdict(history)
    assert not check(history), verdict(history)
    assert {read.session for read in history.reads} >= {f"{reader.name}-{life}-0" for life in (0, 1)}


def test_any_other_end_of_a_client_fails_its_test(
    broker: TransactionBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with Workload(broker, a_seed(capsys), new_topics(broker, 2), libraries=["aiokafka"]) as workload:
        wait_until(lambda: workload.count() >= 2, "transactions are running")
        workload.workers[1].kill(signal.SIGABRT)
        with pytest.raises(AssertionError, match=rf"{workload.workers[1].name} ended with -6"):
            workload.go_on()


def die_in_commits(proxy: JudgingProxy, workload: Workload, count: int) -> None:
    """So many times a worker is no more when it is to hear how its transaction has ended."""
    asked = itertools.count(1)
    dying: list[Worker] = []

    def judge(api_key: int, frame: bytes) -> Verdict:
        if not is_commit(api_key, frame) or next(asked) % COMMITS_BETWEEN_DEATHS:
            return Verdict.PASS
        dying.extend(worker for worker in workload.workers if worker.name.encode() in frame)
        return Verdict.LOSE_ANSWER

    proxy.answer_lost = lambda _: dying.pop().kill(signal.SIGABRT)
    proxy.judge = judge
    wait_until(lambda: sum(len(worker.crashes) for worker in workload.workers) >= count, "they die")
    proxy.judge = None


def is_commit(api_key: int, frame: bytes) -> bool:
    """Whether it is an EndTxn that commits: that field is the last, but for the tags since version 3."""
    (version,) = struct.unpack_from(">h", frame, 2)
    return api_key == EndTxnRequest.api_key and frame[-1 if version < 3 else -2] == 1


def test_a_planted_bug_is_found(
    bug: str,
    is_odradek: bool,
    start_broker: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not is_odradek:
        pytest.skip("bugs are planted in Odradek only")
    monkeypatch.setenv("ODRADEK_PLANTED_BUG", bug)
    monkeypatch.setenv("PYTHONPATH", str(PLANTED), prepend=os.pathsep)
    wanted, library, deaths = BUGS[bug]
    broker = start_broker(proxied=True)
    topics = new_topics(broker, 2)
    leaves_open = wanted is Kind.STUCK
    with Workload(broker, a_seed(capsys), topics, libraries=[library], leaves_open=leaves_open) as workload:
        wait_until(lambda: workload.count() >= 2, "transactions are running")
        if deaths:
            die_in_commits(broker.proxy, workload, deaths)
        else:
            wait_until(lambda: workload.count() >= PLANTED_TRANSACTIONS, "there were enough transactions")
            workload.raise_failure()
        history = workload.finish(PLANTED_STABLE_SECONDS)
    assert wanted in {anomaly.kind for anomaly in check(history)}, f"{bug}: {verdict(history)}"
