"""The part `spark`: Spark's own connector, unmodified, with Apache Kafka and with Odradek; then our formats.

A topic is counted, written, and streamed through, in one Spark session on all cores that works with both
brokers in turn; the one that is not being measured is idle. Rows a second are those of the whole query; the
processor's time is that of Spark with all its processes and that of the broker. Our formats count the same
topic of our broker as the connector does, round by round.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from benchmarks import brokers, machine, results
from benchmarks.comparison import Warming
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.run import Run
from benchmarks.spark_load import BATCHES, MARK, PARTITIONS, VALUE_BYTES, Answer, Ask
from benchmarks.wire_client import WireClient
from tools import environment

ROWS, FEW_ROWS = 5_000_000, 20_000
ROOM_BYTES_PER_ROW = 4 * (VALUE_BYTES + 20)
"""On the disk at once: of each broker the topic that is read and one that is written."""
AT_LEAST = 0.95
READ_TOPIC = "bench-spark"
CASES = {"count": "batch, count of all rows", "write": "batch write", "stream": "streaming, AvailableNow"}
"""Works of `spark_load`, and what they are called."""


@dataclass(frozen=True)
class Format:
    """One of ours, as it is compared with Spark's connector."""

    says: str
    name: str
    options: Mapping[str, str]
    at_least: float
    """Of the connector's rate."""
    counts_cpu: bool = False
    """Whether that holds for the processor's time as well."""


FORMATS = (
    Format('format("odradek")', "odradek", {}, 1.0),
    Format('format("odradek-log"), the same columns', "odradek-log", {"includeMetadata": "false"}, 1.2, True),
    Format('format("odradek-log"), columns=value', "odradek-log", {"columns": "value"}, 1.6, True),
)


@dataclass
class Measured:
    """One case with one broker, a value for each round."""

    rows_per_second: list[float] = field(default_factory=list)
    spark_cpu_s: list[float] = field(default_factory=list)
    broker_cpu_s: list[float] = field(default_factory=list)

    @property
    def cpu_s(self) -> list[float]:
        return [sum(pair) for pair in zip(self.spark_cpu_s, self.broker_cpu_s, strict=True)]


class Spark:
    """The session, in a process of the environment `spark`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._log = folder / "spark.log"
        command = [str(environment.venv("spark") / "bin" / "python"), "-m", "benchmarks.spark_load"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=machine.CHECKOUT,
                env=brokers.user_environment(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, ask: Ask) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps(asdict(ask)), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(MARK):
                answer = Answer(**json.loads(line.removeprefix(MARK)))
                assert answer.rows == ask.rows, f"{ask}: {answer.rows} rows"
                return answer
        said = self._log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"Spark ended with status {self._process.wait()}:\n{said}")

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(brokers.PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def session(folder: pathlib.Path) -> Iterator[Spark]:
    spark = Spark(folder)
    try:
        yield spark
    finally:
        spark.close()


def measure(run: Run, warming: Warming) -> Section:
    """Takes about six minutes with three rounds."""
    rows = run.choose(ROWS, FEW_ROWS)
    run.need_room(rows * ROOM_BYTES_PER_ROW, "a topic of each broker for Spark, twice")
    found = Section("Spark's own connector")
    found.notes = [
        f"{run.rounds} rounds after one that does not count, who goes first alternating. PySpark 4.0.0 with "
        f"its connector as it is, local[2], all cores free; {rows:,} rows of {VALUE_BYTES} bytes in "
        f"{PARTITIONS} partitions; the stream in {BATCHES} batches into nothing. One session for both.",
    ]
    with run.folder("spark") as folder, contextlib.ExitStack() as stack:
        theirs = stack.enter_context(brokers.kafka(run.load_program, folder, None))
        ours = stack.enter_context(brokers.odradek(run.load_program, folder, None))
        spark = stack.enter_context(session(folder))
        for broker in (theirs, ours):
            create_topic(broker, READ_TOPIC)
            spark.do(asked("write", broker, READ_TOPIC, rows))
        for work, name in CASES.items():
            by_broker = measure_in_turn(work, spark, (theirs, ours), rows, run.rounds)
            found.outcomes += compared(name, by_broker[theirs.name], by_broker[ours.name])
            print("\n".join(map(results.line, found.outcomes[-2:])), flush=True)
            found.figures += prices(name, by_broker[ours.name], rows)
        for one in FORMATS:
            found.figures += compared_with_connector(one, spark, ours, rows, run.rounds)
    return found


def compared(name: str, theirs: Measured, ours: Measured) -> list[Outcome]:
    return [
        Outcome(name, "rows/s", False, AT_LEAST, theirs.rows_per_second, ours.rows_per_second),
        Outcome(f"{name}: processor, Spark and broker", "s", True, None, theirs.cpu_s, ours.cpu_s),
    ]


def prices(name: str, ours: Measured, rows: int) -> list[Figure]:
    """What a row costs with our broker."""
    return [
        Figure.median(f"{name}: processor for a row, {who}", [one / rows * 1e6 for one in seconds], "us")
        for who, seconds in (("Spark", ours.spark_cpu_s), ("broker", ours.broker_cpu_s))
    ]


def compared_with_connector(
    one: Format, spark: Spark, broker: brokers.Running, rows: int, rounds: int
) -> list[Figure]:
    """The time and the processor's time of a count, those of Spark's connector being 1."""
    options = {**one.options, "subscribe": READ_TOPIC}
    if one.name == "odradek":
        options["kafka.bootstrap.servers"] = broker.bootstrap
    else:
        options["path"] = str(broker.data)
    asks = asked("count", broker, READ_TOPIC, rows), Ask("count", rows, one.name, options)
    times: list[float] = []
    cpu_times: list[float] = []
    for turn in range(-1, rounds):
        (theirs, *their_cpu_s), (ours, *our_cpu_s) = (measure_ask(ask, spark, broker) for ask in asks)
        if turn >= 0:
            times.append(ours.seconds / theirs.seconds)
            cpu_times.append(sum(our_cpu_s) / max(sum(their_cpu_s), 0.01))
    most = 1 / one.at_least
    return [
        Figure.median(f'{one.says}: time over that of format("kafka")', times, "x", most),
        Figure.median(f"{one.says}: processor likewise", cpu_times, "x", most if one.counts_cpu else None),
    ]


def measure_in_turn(
    work: str, spark: Spark, both: tuple[brokers.Running, brokers.Running], rows: int, rounds: int
) -> dict[str, Measured]:
    """By the broker's name. One round more than asked for is made, and the first is dropped."""
    found = {broker.name: Measured() for broker in both}
    for turn in range(-1, rounds):
        for broker in both if turn % 2 == 0 else reversed(both):
            answer, spark_s, broker_s = measure_once(work, spark, broker, rows)
            if turn >= 0:
                one = found[broker.name]
                one.rows_per_second.append(rows / answer.seconds)
                one.spark_cpu_s.append(spark_s)
                one.broker_cpu_s.append(broker_s)
    return found


def measure_once(work: str, spark: Spark, broker: brokers.Running, rows: int) -> tuple[Answer, float, float]:
    """The answer, and the seconds of processor that Spark and the broker took."""
    topic = READ_TOPIC
    if work == "write":
        topic = f"bench-spark-{time.monotonic_ns()}"
        create_topic(broker, topic)
    measured = measure_ask(asked(work, broker, topic, rows), spark, broker)
    if work == "write":
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([topic])
    return measured


def measure_ask(ask: Ask, spark: Spark, broker: brokers.Running) -> tuple[Answer, float, float]:
    spark_s, broker_s = cpu_seconds_of_all(spark.pid), broker.cpu_seconds()
    answer = spark.do(ask)
    return answer, cpu_seconds_of_all(spark.pid) - spark_s, broker.cpu_seconds() - broker_s


def asked(work: str, broker: brokers.Running, topic: str, rows: int) -> Ask:
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    return Ask(work, rows, "kafka", {**options, "topic" if work == "write" else "subscribe": topic})


def create_topic(broker: brokers.Running, topic: str) -> None:
    with WireClient("127.0.0.1", broker.port) as client:
        client.create_topics([topic], PARTITIONS)


def cpu_seconds_of_all(pid: int) -> float:
    """User and system time of a process, of those that it started, and so on, with those that have ended."""
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        children = [int(child) for one in folder.glob("task/*/children") for child in one.read_text().split()]
        own = brokers.cpu_seconds(pid, with_ended_children=True)
    except FileNotFoundError:  # it has just ended, and counts as a child of its parent
        return 0.0
    return own + sum(map(cpu_seconds_of_all, children))
