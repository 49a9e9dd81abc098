"""Kafka's tools for administrators, against Apache Kafka and against us: what they print, and how they end.

What is not built (users, quotas) is an empty list on both sides; to set it ends with a refusal here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients.kafka_python import KafkaPythonClient
from tests.tiers import rest_at_night

TOOLS = "org.apache.kafka.tools"
CONFIGS = reference.CONFIG_COMMAND
TOPIC = "administered"

OWN = (
    (r"^.*(\tat |\[kafka-admin-client-thread).*\n", ""),  # where in the tool, and when
    (r"^log4j:WARN .*\n", ""),  # It names the first logger of a virtual machine.
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r'"endpoints": \["\w+://ADDRESS"\]', "ENDPOINT"),  # Kafka has a listener for controllers
    (r"\b[\w-]{22}(?=[\s)\"\]])", "ID"),
    (r"(Epoch|HighWatermark): +\d+", r"\1: N"),
    (r"(?<=ID\t)\d+ +\t0 +\t\d+ +\t\d+ +", "OFFSETS AND TIMES"),
    (r"(?<=ResourceNotFoundException: ).*", "THE REASON"),
)
"""What each broker has for itself, and what stands for it."""


class Pair:
    """The addresses of both, and how their tools end."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def run(
        self, main_class: str, *arguments: str, version: str = reference.CURRENT
    ) -> list[tuple[int, str]]:
        """(exit status, what was printed) of Kafka's and of ours, at the same time. BOOTSTRAP stands for the
        address.
        """

        def one(address: str) -> tuple[int, str]:
            words = [address if word == "BOOTSTRAP" else word for word in arguments]
            finished = reference.kafka_tool(main_class, *words, version=version, check=False)
            return finished.returncode, plain(finished)

        with ThreadPoolExecutor(len(self.addresses)) as threads:
            return list(threads.map(one, self.addresses))


def plain(finished: subprocess.CompletedProcess[str]) -> str:
    text = finished.stdout + finished.stderr
    for pattern, stands_for in OWN:
        text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
    return text


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with reference.Kafka(host=shared_host()) as kafka, odradek.Broker(process=True) as ours:
        for address in (kafka.bootstrap_servers, ours.bootstrap_servers):
            KafkaPythonClient(address).create_topic(TOPIC, 2)
        yield Pair(kafka.bootstrap_servers, ours.bootstrap_servers)


@pytest.mark.parametrize(
    ("words", "status", "shown"),
    [
        (f"{TOOLS}.LeaderElectionCommand --election-type preferred --all-topic-partitions", 0, ""),
        (
            f"{TOOLS}.LeaderElectionCommand --election-type preferred --topic {TOPIC} --partition 0",
            0,
            "Valid replica already elected for partitions administered-0",
        ),
        (
            f"{TOOLS}.LeaderElectionCommand --election-type unclean --topic {TOPIC} --partition 1",
            0,
            "Valid replica already elected",
        ),
        (
            f"{TOOLS}.LeaderElectionCommand --election-type preferred --topic nowhere --partition 1",
            1,
            "could not be elected",
        ),
        (f"{TOOLS}.MetadataQuorumCommand describe --status", 0, "LeaderId:"),
        (f"{TOOLS}.MetadataQuorumCommand describe --replication", 0, "Leader"),
        (
            f"{TOOLS}.MetadataQuorumCommand remove-controller --controller-id 7 "
            "--controller-directory-id AQEBAQEBAQEBAQEBAQEBAQ",
            1,
            "VoterNotFoundException",
        ),
        (f"{TOOLS}.AclCommand --list", 1, "SecurityDisabledException"),
        (
            f"{TOOLS}.AclCommand --add --allow-principal User:alice --operation read --topic t",
            1,
            "SecurityDisabledException",
        ),
        (
            f"{TOOLS}.AclCommand --remove --force --allow-principal User:alice --operation read --topic t",
            1,
            "SecurityDisabledException",
        ),
        (f"{CONFIGS} --describe --entity-type users", 0, ""),
        (f"{CONFIGS} --describe --entity-type clients", 0, ""),
        (f"{CONFIGS} --describe --entity-type ips", 0, ""),
        (f"{CONFIGS} --describe --entity-type users --entity-name alice", 0, ""),
        (f"{CONFIGS} --describe --entity-type clients --entity-default", 0, ""),
    ],
)
def test_a_tool_ends_as_with_kafka(pair: Pair, words: str, status: int, shown: str) -> None:
    main_class, *arguments = words.split()
    theirs, ours = pair.run(main_class, "--bootstrap-server", "BOOTSTRAP", *arguments)
    assert ours == theirs
    assert ours[0] == status
    assert shown in ours[1]


def test_a_user_gets_settings_and_a_secret_as_with_kafka(pair: Pair) -> None:
    alice = "--entity-type users --entity-name alice"
    for words, status, shown in (
        (f"--alter --delete-config SCRAM-SHA-256 {alice}", 1, "ResourceNotFoundException"),
        (f"--alter --add-config producer_byte_rate=-1 {alice}", 1, "InvalidRequestException"),
        (
            f"--alter --add-config producer_byte_rate=1000 {alice}",
            0,
            "Completed updating config for user alice.",
        ),
        (
            f"--alter --add-config SCRAM-SHA-256=[password=secret] {alice}",
            0,
            "Completed updating config for user",
        ),
        (f"--describe {alice}", 0, "producer_byte_rate=1000"),
        ("--describe --entity-type users", 0, "SCRAM-SHA-256=iterations=4096"),
    ):
        theirs, ours = pair.run(CONFIGS, *words.split(), "--bootstrap-server", "BOOTSTRAP")
        assert ours == theirs, words
        assert ours[0] == status, words
        assert shown in ours[1], words


@pytest.mark.parametrize(("command", "status"), [("unregister", 1), ("cluster-id", 0)])
def test_the_cluster_tool_ends_as_with_kafka(pair: Pair, command: str, status: int) -> None:
    more = ("--id", "7") if command == "unregister" else ()
    theirs, ours = pair.run(f"{TOOLS}.ClusterTool", command, "--bootstrap-server", "BOOTSTRAP", *more)
    assert ours == theirs
    assert ours[0] == status


@pytest.mark.parametrize(
    "words",
    [
        "--describe",
        "--create --max-life-time-period -1",
        "--renew --renew-time-period -1 --hmac QUJD",
        "--expire --expiry-time-period -1 --hmac QUJD",
    ],
)
def test_tokens_are_for_who_has_proved_a_name(pair: Pair, words: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("request.timeout.ms=10000\n")
    command = ("--bootstrap-server", "BOOTSTRAP", "--command-config", str(tmp_path / "client.properties"))
    theirs, ours = pair.run(f"{TOOLS}.DelegationTokenCommand", *command, *words.split())
    assert ours == theirs
    assert ours[0] == 1
    assert "DelegationTokenDisabledException" in ours[1] or "not allowed" in ours[1]


def features(pair: Pair, words: str, version: str) -> list[tuple[int, str]]:
    return pair.run(
        f"{TOOLS}.FeatureCommand", "--bootstrap-server", "BOOTSTRAP", *words.split(), version=version
    )


@pytest.mark.parametrize("version", rest_at_night(reference.CURRENT, reference.OLDER))
def test_the_features_tool_ends_as_with_kafka(pair: Pair, version: str) -> None:
    """With the levels of a new directory, which are those of Kafka."""
    is_current = version == reference.CURRENT
    upgrades = ["upgrade --release-version 4.4", "upgrade --metadata 4.4"] if is_current else []
    for words in (
        "describe",
        *upgrades,
        "upgrade --release-version 3.9",
        "upgrade --metadata 3.9",
        "upgrade --feature kraft.version=1 --feature metadata.version=33",
        "upgrade --feature metadata.version=34",
        "downgrade --metadata 3.9",
        "downgrade --unsafe --metadata 3.9",
        "disable --feature metadata.version",
        "disable --feature kraft.version",
        "disable --feature eligible.leader.replicas.version --dry-run",
        "disable --feature eligible.leader.replicas.version",
        "describe",
        "upgrade --feature eligible.leader.replicas.version=1",
        "downgrade --feature nonsense=1",
    ):
        theirs, ours = features(pair, words, version)
        assert ours == theirs, words
        if words in upgrades:
            assert ours[0] == 0
