"""Kafka's command-line tools, of 4.3 and of 3.9: each command does and prints the same with Kafka and here.

Elections, quorums and features are in `compat_tests/test_administration_tools.py`; how tools behave beside
clients that go on is in `compat_tests/test_java_tools.py`. Tools that log in, and what they do for users,
quotas, ACLs and tokens, are in `test_secured_tools.py`.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff

import pytest
from kafka import KafkaProducer

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import Message
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit.looking import looks
from compat_tests.stories import START_MS

TOOLS = "org.apache.kafka.tools"
CONFIGS = reference.CONFIG_COMMAND
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CLIENT_METRICS = f"{TOOLS}.ClientMetricsCommand"

OWN = (
    # Where in the tool, and when.
    (r"^(.*\tat |.*\[kafka-admin-client-thread).*\n", ""),
    (r"^[\d:.]+ \[main\] ERROR", "TIME ERROR"),
    (r"^log4j:WARN .*\n", ""),  # It names the first logger of a virtual machine.
    # Why something is refused, in the words of the broker.
    (r"(\w+Exception):(?! org\.| java\.).*", r"\1: WORDS"),
    (r"(Error while executing [\w ]+ command :) .*", r"\1 WORDS"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b[\w-]{22}(?=[\s)\"\],])", "ID"),
    (r"ADDRESS \(id: 1 rack: null isFenced: false\)", "NODE"),
)
"""What each broker has for itself, and what stands for it."""


class Side:
    """One broker. `command_config` is what tools log in with there."""

    def __init__(
        self, name: str, address: str, data_dir: pathlib.Path, command_config: pathlib.Path | None = None
    ) -> None:
        self.name, self.address, self.data_dir = name, address, data_dir
        self.command_config = command_config
        self.own = {"BOOTSTRAP": address, "DATA": str(data_dir)}
        """Words that stand for something of this broker."""
        self.printed = ""
        """By the last tool."""

    def run(self, version: str, words: Sequence[str]) -> tuple[int, str]:
        """The exit status, and what was printed."""
        if self.command_config is not None:
            words = [*words, "--command-config", str(self.command_config)]
        tool, *words = (self.own.get(word, word) for word in words)
        finished = reference.kafka_tool(tool, *words, version=version, check=False)
        self.printed = finished.stdout + finished.stderr
        text = self.printed.replace(str(self.data_dir), "DATA")
        for pattern, stands_for in OWN:
            text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
        return finished.returncode, text


Change = tuple[str, str]
"""A regular expression, and what stands for what it finds."""


class Pair:
    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = sides
        self.found: list[str] = []
        """Lines about what was different."""

    def compare(
        self,
        version: str,
        tool: str,
        words: str | Sequence[str],
        *,
        shows: str = "",
        status: int = 0,
        changes: Sequence[Change] = (),
        unordered: bool = False,
    ) -> str:
        """Notes where they end otherwise or print something else; what ours has printed."""
        words = words.split() if isinstance(words, str) else words
        command = [tool, "--bootstrap-server", "BOOTSTRAP", *words]
        if tool.endswith("ClusterTool"):
            command = [tool, words[0], "--bootstrap-server", "BOOTSTRAP", *words[1:]]

        def ended(side: Side) -> tuple[int, str]:
            code, text = side.run(version, command)
            for pattern, stands_for in changes:
                text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
            return code, "\n".join(sorted(text.split("\n"))) if unordered else text

        for _ in looks(command):
            with ThreadPoolExecutor(len(self.sides)) as threads:
                theirs, ours = threads.map(ended, self.sides)
            if ours == theirs:
                break
        what = " ".join(command)
        if ours != theirs:
            lines = [f"status {code}\n{text}".split("\n") for code, text in (theirs, ours)]
            self.found += [what, *unified_diff(*lines, "Kafka", "Odradek", lineterm="")]
        elif ours[0] != status or shows not in ours[1]:
            self.found += [what, f"both end with {ours[0]}, and print: {ours[1]}"]
        return ours[1]

    def check(self) -> None:
        """Fails where commands have ended otherwise or printed something else than with Kafka."""
        __tracebackhide__ = True
        found, self.found = self.found, []
        assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Pair]:
    with (
        reference.Kafka(properties={"auto.create.topics.enable": "false"}, host=shared_host()) as kafka,
        odradek.Broker(
            process=True, auto_create_topics_enable=False, group_streams_initial_rebalance_delay_ms=3000
        ) as ours,
    ):
        sides = [
            Side("Kafka", kafka.bootstrap_servers, kafka.data_dir),
            Side("Odradek", ours.bootstrap_servers, ours.data_dir),
        ]
        yield Pair(sides)


@pytest.fixture
def pair(brokers: Pair) -> Pair:
    brokers.found.clear()
    return brokers


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def is_current(version: str) -> bool:
    return version == reference.CURRENT


def new_topic(pair: Pair, name: str, version: str, *, records: int = 0) -> str:
    """A topic with two partitions on both sides, with records."""
    topic = f"{name}-{version}"
    for side in pair.sides:
        client = KafkaPythonClient(side.address)
        client.create_topic(topic, 2)
        messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + n) for n in range(records)]
        if messages:
            client.produce(topic, messages)
    return topic


def test_topics(pair: Pair, version: str) -> None:
    topic = f"made-{version}"

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, TOPICS, words, shows=shows, status=status, unordered="--list" in words)

    settings = "--config retention.ms=1000 --config cleanup.policy=compact"
    run(f"--create --topic {topic} --partitions 2 --replication-factor 1 {settings}", "Created topic")
    run(f"--create --topic {topic}", "WORDS", 1)
    run(f"--create --topic {topic} --if-not-exists")
    run("--create --topic bad/name", status=1)
    run("--create --topic a.b_c", "WARNING")
    run("--create --topic a_b.c", status=1)
    run(f"--create --topic x-{version} --config nonsense=1", "WORDS", 1)
    run(f"--create --topic x-{version} --replication-factor 3", "WORDS", 1)
    run(f"--create --topic x-{version} --partitions 0", status=1)
    run(f"--create --topic manual-{version} --replica-assignment 1,1")
    run(f"--create --topic x-{version} --replica-assignment 1:2", "WORDS", 1)
    run(f"--describe --topic manual-{version}", "PartitionCount: 2")
    run(f"--alter --topic {topic} --partitions 4")
    run(f"--alter --topic {topic} --partitions 1", "WORDS", 1)
    run(f"--alter --topic nowhere-{version} --partitions 9", status=1)
    run(f"--alter --topic nowhere-{version} --partitions 9 --if-exists")
    run("--list", topic)
    run("--list --exclude-internal", topic)
    run(f"--list --topic {topic}", topic)
    run(f"--describe --topic {topic}", "retention.ms=1000")
    run(f"--describe --topic nowhere-{version}", status=1)
    run(f"--describe --topic nowhere-{version} --if-exists")
    run("--describe --topics-with-overrides", topic)
    for only in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        run(f"--describe --{only}-partitions --topic {topic}")
    for name in (topic, f"manual-{version}", "a.b_c"):
        run(f"--delete --topic {name}")
    run(f"--delete --topic {topic}", "WORDS", 1)
    run(f"--delete --topic {topic} --if-exists")
    pair.check()


def test_settings_of_topics_brokers_and_groups(pair: Pair, version: str, tmp_path: pathlib.Path) -> None:
    topic = new_topic(pair, "configured", version)

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, CONFIGS, words, shows=shows, status=status)

    own = f"--entity-type topics --entity-name {topic}"
    run(f"--describe {own}")
    run(f"--describe --all {own}", "retention.ms=604800000")
    run(f"--alter --add-config retention.ms=5000,max.message.bytes=4000 {own}", "Completed updating")
    run(f"--alter --add-config cleanup.policy=[compact,delete] {own}")
    run(f"--describe {own}", "retention.ms=5000")
    run(f"--describe --topic {topic}", "retention.ms=5000")
    run(f"--alter --add-config retention.ms=soon {own}", "InvalidConfigurationException", 1)
    run(f"--alter --add-config nonsense=1 {own}", "nonsense", 1)
    # The older tool looks for itself whether there is such a setting.
    run(f"--alter --delete-config nonsense {own}", status=0 if is_current(version) else 1)
    run(f"--alter --delete-config retention.ms,cleanup.policy {own}")
    run(f"--describe {own}", "max.message.bytes=4000")
    run(f"--alter --add-config retention.ms=1 --entity-type topics --entity-name nowhere-{version}", status=1)
    file = tmp_path / "added.properties"
    file.write_text("retention.ms=7000\nflush.ms=8000\n")
    run(f"--alter --add-config-file {file} {own}")
    run(f"--describe {own}", "flush.ms=8000")
    for broker in ("--entity-name 1", "--entity-default"):
        own = f"--entity-type brokers {broker}"
        run(f"--alter --add-config log.retention.bytes=5000 {own}", "Completed updating")
        run(f"--describe {own}", "log.retention.bytes=5000")
        run(f"--alter --add-config log.retention.bytes=much {own}", status=1)
        run(f"--alter --add-config num.partitions=5 {own}", status=1)
        run(f"--alter --add-config log.dirs=x {own}", "InvalidRequestException", 1)
        run(f"--alter --delete-config log.retention.bytes {own}")
        run(f"--describe {own}")
    if is_current(version):
        run("--describe --entity-type brokers --entity-name 7", "doesn't exist")
        own = "--entity-type groups --entity-name configured"
        run(f"--alter --add-config consumer.session.timeout.ms=50000 {own}")
        run(f"--describe {own}", "50000")
        run("--describe --entity-type groups", "50000")
        run(f"--describe --all {own}")
        run(f"--alter --add-config consumer.session.timeout.ms=1 {own}", status=1)
        run(f"--alter --delete-config consumer.session.timeout.ms {own}")
    pair.check()


def test_levels_of_loggers(pair: Pair, version: str) -> None:
    def run(words: str, shows: str = "", status: int = 0, changes: Sequence[Change] = ()) -> None:
        words += " --entity-type broker-loggers --entity-name 1"
        pair.compare(version, CONFIGS, words, shows=shows, status=status, changes=changes)

    only_root = ((r"^ +(?!root=)[\w.$-]+=.*\n?", ""), (r"\n+$", ""))
    run("--alter --add-config root=ERROR", "Completed updating")
    run("--describe", "root=ERROR", changes=only_root)
    run(
        "--alter --add-config root=LOUD",
        "LOUD",
        1,
        changes=((r"(?s)InvalidConfigurationException.*LOUD.*", "LOUD"),),
    )
    run("--alter --add-config no.such.logger=INFO", "no.such.logger", 1)
    run("--alter --delete-config root", "root", 1, changes=((r"(?s)InvalidRequestException.*", "root"),))
    run("--alter --add-config root=WARN")
    run("--describe", "root=WARN", changes=only_root)
    pair.check()


def test_client_metrics(pair: Pair, version: str) -> None:
    name = f"subscribed-{version}"

    def run(words: str, shows: str = "", status: int = 0, tool: str = CLIENT_METRICS) -> None:
        pair.compare(version, tool, words, shows=shows, status=status)

    run("--list")
    run(f"--describe --name {name}")
    run(f"--alter --name {name} --metrics org.a,org.b --interval 5000 --match client_id=a", "Altered")
    run("--list", name)
    run(f"--describe --name {name}", "interval.ms=5000")
    run("--describe", name)
    run(f"--alter --name {name} --interval 5", status=1)
    run(f"--alter --name {name} --metrics *", "Altered")
    run(f"--describe --entity-type client-metrics --entity-name {name}", "metrics=*", tool=CONFIGS)
    own = f"--entity-type client-metrics --entity-name {name}"
    run(f"--alter --add-config interval.ms=6000 {own}", "Completed updating", tool=CONFIGS)
    run(f"--alter --add-config match=nonsense {own}", status=1, tool=CONFIGS)
    run(f"--describe {own}", "6000", tool=CONFIGS)
    run(f"--alter --delete-config interval.ms {own}", tool=CONFIGS)
    run(f"--delete --name {name}")
    run("--list")
    pair.check()


def test_consumer_groups(pair: Pair, version: str, tmp_path: pathlib.Path) -> None:
    topic, group = new_topic(pair, "grouped", version, records=20), f"readers-{version}"
    for side in pair.sides:
        KafkaPythonClient(side.address).commit(group, topic, {0: 3, 1: 5})

    def run(words: str, shows: str = "", status: int = 0, *, unordered: bool = False) -> str:
        return pair.compare(version, GROUPS, words, shows=shows, status=status, unordered=unordered)

    run("--list", group, unordered=True)
    run("--list --state", group, unordered=True)
    run("--list --type", group, unordered=True)
    run("--list --state Stable,Empty", group, unordered=True)
    run(f"--describe --group {group}", topic)
    run(f"--describe --group {group} --state", "Empty")
    run(f"--describe --group {group} --members")
    run(f"--describe --group {group} --members --verbose")
    run(f"--describe --group {group} --offsets --verbose", topic)
    run(f"--describe --group nowhere-{version}")
    run("--describe --all-groups --state", group, unordered=True)
    reset = f"--reset-offsets --group {group} --topic {topic}"
    run(f"{reset} --to-earliest --dry-run", topic, unordered=True)
    run(f"{reset} --to-latest --execute", topic, unordered=True)
    run(f"{reset} --shift-by -2 --execute", "8", unordered=True)
    run(f"{reset}:1 --to-offset 4 --execute", "4", unordered=True)
    run(f"{reset} --to-offset 99 --dry-run", "10", unordered=True)
    run(f"{reset} --to-datetime 2001-01-01T00:00:00.000 --dry-run", "0", unordered=True)
    run(f"{reset} --to-current --dry-run", unordered=True)
    run(f"--reset-offsets --group {group} --all-topics --by-duration PT0S --dry-run", unordered=True)
    exported = run(f"{reset} --to-earliest --export --dry-run", topic, unordered=True)
    file = tmp_path / "offsets.csv"
    rows = [line for line in exported.split("\n") if topic in line]
    file.write_text("\n".join(rows))
    run(f"--reset-offsets --group {group} --from-file {file} --execute", topic, unordered=True)
    run(f"--reset-offsets --group {group} --topic nowhere-{version} --to-earliest --dry-run")
    run(f"--delete-offsets --group {group} --topic {topic}:1", "Successful")
    run(f"--delete-offsets --group {group} --topic nowhere-{version}")
    run(f"--delete-offsets --group nowhere-{version} --topic {topic}")
    run(f"--describe --group {group}", topic)
    run(f"--delete --group {group}", "successful")
    run(f"--delete --group {group}", "GroupIdNotFoundException")
    run("--list", unordered=True)
    pair.check()


def test_groups_of_other_types(pair: Pair) -> None:
    topic, group = new_topic(pair, "listed", reference.CURRENT, records=2), "listed"
    for side in pair.sides:
        KafkaPythonClient(side.address).commit(group, topic, {0: 1})

    def run(tool: str, words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(reference.CURRENT, f"{TOOLS}.{tool}", words, shows=shows, status=status, unordered=True)

    run("GroupsCommand", "--list", group)
    for words in ("--consumer", "--group-type classic", "--group-type consumer", "--protocol consumer"):
        run("GroupsCommand", f"--list {words}")
    streams = "streams.StreamsGroupCommand"
    run(streams, "--list")
    run(streams, "--list --state Empty")
    run(streams, "--describe --group nowhere", status=1)
    run(streams, "--delete --group nowhere", status=0)
    run(streams, "--reset-offsets --group nowhere --all-input-topics --to-earliest --dry-run", status=1)
    pair.check()


def test_reassignments(pair: Pair, version: str, tmp_path: pathlib.Path) -> None:
    topic = new_topic(pair, "moved", version)
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"

    def written(name: str, content: dict[str, object]) -> str:
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return str(path)

    def plan(*replicas: int) -> str:
        partitions = [{"topic": topic, "partition": 0, "replicas": replicas}]
        return f"--reassignment-json-file {written('plan.json', {'version': 1, 'partitions': partitions})}"

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, tool, words, shows=shows, status=status)

    topics = written("topics.json", {"version": 1, "topics": [{"topic": topic}]})
    run(f"--generate --topics-to-move-json-file {topics} --broker-list 1", topic)
    run(f"--generate --topics-to-move-json-file {topics} --broker-list 7", status=1)
    run("--list", "No partition reassignments found.")
    run(f"--execute {plan(1)}", "Successfully started")
    run(f"--verify {plan(1)}", "completed")
    run(f"--cancel {plan(1)}")
    run(f"--execute {plan(1)} --throttle 1000 --replica-alter-log-dirs-throttle 2000", "throttle")
    run(f"--verify {plan(1)}", "Clearing")
    run(f"--execute {plan(9)}", "Unknown broker id 9", 1)
    run(f"--execute {plan()}", status=1)
    pair.check()


def test_records_offsets_and_log_directories(pair: Pair, version: str, tmp_path: pathlib.Path) -> None:
    topic = new_topic(pair, "kept", version, records=20)

    def run(tool: str, words: str, shows: str = "", status: int = 0, changes: Sequence[Change] = ()) -> None:
        pair.compare(version, f"{TOOLS}.{tool}", words, shows=shows, status=status, changes=changes)

    for time in ("-1", "-2", "latest", "earliest", "max-timestamp", str(START_MS + 5), "-4", "-5"):
        run("GetOffsetShell", f"--topic {topic} --time {time}")
    run("GetOffsetShell", f"--topic-partitions {topic}:1 --exclude-internal-topics", f"{topic}:1:10")
    run("GetOffsetShell", f"--topic-partitions {topic}:0-1,nowhere:5", f"{topic}:0:10")
    run("GetOffsetShell", f"--topic nowhere-{version}", status=1)
    run("GetOffsetShell", f"--topic {topic} --partitions 1")
    wanted = tmp_path / "offsets.json"
    for offset, shows in ((4, "low_watermark: 4"), (-1, "low_watermark: 10"), (99, "OffsetOutOfRange")):
        partitions = [{"topic": topic, "partition": 0, "offset": offset}]
        wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
        run("DeleteRecordsCommand", f"--offset-json-file {wanted}", shows)
    run("GetOffsetShell", f"--topic {topic} --time earliest", f"{topic}:0:10")
    run("LogDirsCommand", f"--describe --topic-list {topic}", topic)
    run("LogDirsCommand", f"--describe --topic-list {topic} --broker-list 1", topic)
    run("LogDirsCommand", f"--describe --topic-list nowhere-{version}")
    run("LogDirsCommand", f"--describe --topic-list {topic} --broker-list 7", status=1)
    pair.check()


def test_transactions(pair: Pair, version: str) -> None:
    topic, transactional_id = new_topic(pair, "transactional", version), f"payments-{version}"
    for side in pair.sides:
        producer = KafkaProducer(bootstrap_servers=side.address, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"one", partition=0).get(timeout=60)
        producer.commit_transaction()
        producer.close()
    tool = f"{TOOLS}.TransactionsCommand"
    times: Sequence[Change] = (
        (r"\b1[0-9]{12}\b", "TIME"),
        (r"(ID|TIME)\s+(\d+(?=\s*$))?", r"\1 "),  # and a time since
        (r"(?<=[\t ])\d{1,9}(?= *\t0)|^\d+(?=\t)", "PRODUCER"),
        (r" +(?=\t|$)", ""),
    )

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, tool, words, shows=shows, status=status, changes=times, unordered=True)

    run("list", transactional_id)
    run("list --duration-filter 3600000")
    run(f"describe --transactional-id {transactional_id}", transactional_id)
    run("describe --transactional-id nobody", status=1)
    run(f"describe-producers --topic {topic} --partition 0", "None")
    run("find-hanging --broker-id 1")
    run(f"find-hanging --topic {topic}")
    run(f"abort --topic {topic} --partition 0 --start-offset 77", status=1)
    if is_current(version):
        run("list --transactional-id-pattern pay.*", transactional_id)
        run("list --transactional-id-pattern (", status=1)
    pair.check()


def test_the_cluster_and_its_endpoints(pair: Pair) -> None:
    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(
            reference.CURRENT,
            f"{TOOLS}.ClusterTool",
            words,
            shows=shows,
            status=status,
            changes=((r"\d{4,5}(?= +\S* *(broker|null))", "PORT"), (r" +", " ")),
        )

    run("cluster-id", "ID")
    run("list-endpoints", "broker")
    run("list-endpoints --include-fenced-brokers", "broker")
    run("unregister --id 7", status=1)
    pair.check()


def test_elections_and_the_quorum_by_the_older_tools(pair: Pair) -> None:
    """By those of 4.3 they are in `compat_tests/test_administration_tools.py`."""
    topic = new_topic(pair, "elected", reference.OLDER)
    own: Sequence[Change] = (
        (r"(Epoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs): +-?\d+", r"\1: N"),
        (r"^1[ \t]+(ID[ \t]+)?\d+[ \t]+0[ \t]+\d+[ \t]+\d+[ \t]+Leader", "LEADER"),
        (r'"endpoints": \["\w+://ADDRESS"\]', "ENDPOINT"),  # Kafka has a listener for controllers
    )

    def run(tool: str, words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(reference.OLDER, f"{TOOLS}.{tool}", words, shows=shows, status=status, changes=own)

    run("LeaderElectionCommand", "--election-type preferred --all-topic-partitions")
    run("LeaderElectionCommand", f"--election-type preferred --topic {topic} --partition 0", "already")
    run("LeaderElectionCommand", f"--election-type unclean --topic {topic} --partition 1", "already")
    run("LeaderElectionCommand", "--election-type preferred --topic nowhere --partition 1", status=1)
    run("MetadataQuorumCommand", "describe --status", "LeaderId:")
    run("MetadataQuorumCommand", "describe --replication", "LEADER")
    run("ClusterTool", "cluster-id", "ID")
    run("ClusterTool", "unregister --id 7", status=1)
    pair.check()


def test_what_features_are_there_for_a_version(pair: Pair) -> None:
    """By the tool of 4.3; that of 3.9 has no such commands."""
    tool = f"{TOOLS}.FeatureCommand"

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(reference.CURRENT, tool, words, shows=shows, status=status)

    run("version-mapping", "metadata.version=")
    for version in ("3.9-IV0", "4.0-IV3", "4.3-IV0"):
        run(f"version-mapping --release-version {version}", "metadata.version=")
    run("version-mapping --release-version 99.0", status=1)
    run("feature-dependencies --feature metadata.version=25")
    run("feature-dependencies --feature transaction.version=2 --feature group.version=1")
    run("feature-dependencies --feature share.version=1")
    run("feature-dependencies --feature eligible.leader.replicas.version=1", "requires")
    run("feature-dependencies --feature nonsense=1", status=1)
    run("feature-dependencies --feature group.version=99", status=1)
    pair.check()


def test_share_groups_that_are_switched_off() -> None:
    """Their APIs are served only to refuse them. Where the broker sends a message, its words are its own."""
    refusal = (
        r"The version of API is not supported\.|The broker does not support this version of the request\.",
        "NOT SUPPORTED",
    )
    with (
        reference.Kafka(host=shared_host()) as kafka,
        odradek.Broker(process=True) as ours,
    ):
        sides = [
            Side("Kafka", kafka.bootstrap_servers, kafka.data_dir),
            Side("Odradek", ours.bootstrap_servers, ours.data_dir),
        ]
        pair = Pair(sides)
        new_topic(pair, "shared", reference.CURRENT)

        def run(tool: str, words: str, shows: str = "", status: int = 0) -> None:
            full = f"{TOOLS}.{tool}"
            pair.compare(reference.CURRENT, full, words, shows=shows, status=status, changes=[refusal])

        run("FeatureCommand", "downgrade --feature share.version=0", "was downgraded")
        tool = "consumer.group.ShareGroupCommand"
        run(tool, "--list")
        run(tool, "--list --state Stable")
        for what in ("", " --state", " --members"):
            run(tool, f"--describe --group nowhere{what}", "UnsupportedVersionException")
        run(tool, "--describe --all-groups")
        run(
            tool,
            "--reset-offsets --group nowhere --topic shared-4.4.0 --to-earliest --execute",
            "NOT SUPPORTED",
            1,
        )
        run(tool, "--delete-offsets --group nowhere --topic shared-4.4.0", "NOT SUPPORTED")
        run(tool, "--delete --group nowhere")
        run("GroupsCommand", "--list --share")
    pair.check()


def test_versions_of_apis(pair: Pair, version: str) -> None:
    """But for the oldest versions, which we still serve."""
    tool = (
        f"{TOOLS}.BrokerApiVersionsCommand" if is_current(version) else "kafka.admin.BrokerApiVersionsCommand"
    )
    served = (
        (r": \d+ to (\d+)", r": to \1"),
        (r"(\(\d+\)): (\d+) \[", r"\1: to \2 ["),
    )
    pair.compare(version, tool, "", shows="Produce(0): to 13", changes=served)
    pair.check()


def test_the_reset_of_a_streams_application(pair: Pair, version: str) -> None:
    topic = new_topic(pair, "streamed", version, records=4)
    for side in pair.sides:
        KafkaPythonClient(side.address).commit(f"app-{version}", topic, {0: 2, 1: 1})

    def run(words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, f"{TOOLS}.StreamsResetter", words, shows=shows, status=status, unordered=True)

    app = f"--application-id app-{version}"
    run(f"{app} --input-topics {topic} --dry-run", topic)
    run(f"{app} --input-topics {topic} --to-earliest", topic)
    run(f"{app} --input-topics {topic} --shift-by 1 --force")
    run(f"{app} --input-topics nowhere-{version}", status=1)
    run(f"{app} --intermediate-topics {topic} --dry-run")
    pair.check()
