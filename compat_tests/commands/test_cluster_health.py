"""`odradek cluster` and `odradek configs` in a cluster of two brokers, ours or Kafka's, one of which dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember

Rows = list[dict[str, Any]]
SHORT_SESSION = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}


@pytest.fixture(scope="module")
def all_members(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    member = KafkaMember if request.config.getoption("--broker") == "kafka" else OdradekMember
    with (
        Controllers(SHORT_SESSION, host=shared_host()) as controllers,
        member(controllers, 1) as one,
        member(controllers, 2) as two,
    ):
        yield [one, two]


@pytest.fixture
def members(all_members: list[Any]) -> list[Any]:
    """Both brokers; one that a test before has killed is started again."""
    for member in all_members:
        if not member.is_running:
            member.start()
    return all_members


def test_partitions_move_and_leaders_come_back(rows: Callable[..., Rows], members: list[Any]) -> None:
    at_one = {"bootstrap": members[0].bootstrap_servers}

    def replicas() -> list[list[int]]:
        described = rows("topics", "describe", "moved", **at_one)
        return [row["replicas"] for row in described if row["leader"] is not None]

    rows("topics", "create", "moved", "-p", "2", "-r", "1", **at_one)
    wait_until(lambda: len(rows("topics", "list", "moved", **at_one)) == 1, "the topic is there", seconds=60)
    before = replicas()
    tried = rows("topics", "move", "moved", "--to", "1,2", "--replicas", "2", "--dry-run", **at_one)
    assert sorted(sorted(row["replicas"]) for row in tried) == [[1, 2], [1, 2]]
    assert replicas() == before
    planned = rows("topics", "move", "moved", "--to", "1,2", "--replicas", "2", "--wait", **at_one)
    assert planned == tried
    wait_until(lambda: replicas() == [row["replicas"] for row in planned], "both have both", seconds=60)
    assert rows("topics", "move", **at_one) == []
    wait_until(
        lambda: all(len(row["in_sync"]) == 2 for row in rows("topics", "describe", "moved", **at_one)),
        "both are in sync",
    )
    rows("cluster", "elect", "moved", **at_one)
    wait_until(
        lambda: all(
            row["leader"] == row["replicas"][0] for row in rows("topics", "describe", "moved", **at_one)
        ),
        "the first replicas lead",
    )
    rows("topics", "delete", "moved", **at_one)


def test_a_broker_that_dies_is_seen_in_each_check_that_it_concerns(
    rows: Callable[..., Rows], members: list[Any]
) -> None:
    one, two = members
    at_one = {"bootstrap": one.bootstrap_servers}

    def found(status: int) -> dict[str, list[str]]:
        checks = rows("cluster", "health", "--min-free", "0", "--timeout", "5", **at_one, status=status)
        return {check["check"]: check["found"] for check in checks if check["found"]}

    rows("topics", "create", "both", "-p", "2", "-r", "2", **at_one)
    wait_until(lambda: len(rows("topics", "list", "both", **at_one)) == 1, "the topic is there", seconds=60)
    wait_until(
        lambda: {row["broker"] for row in rows("cluster", "info", **at_one)} == {1, 2}, "both are there"
    )
    assert {row["broker"] for row in rows("cluster", "log-dirs", **at_one)} == {1, 2}
    assert found(0) == {}
    for broker in ("1", "2"):
        rows("configs", "set", f"broker:{broker}", f"log.cleaner.threads={broker}", **at_one)
        wait_until(
            lambda b=broker: (
                rows("configs", "get", f"broker:{b}", "log.cleaner.threads", **at_one)[0]["value"]  # type: ignore[misc]
                == b
            ),
            "each broker has its own value",
        )
    two.kill()
    wait_until(
        lambda: (
            not any(
                row["fenced"] is False and row["broker"] == 2 for row in rows("cluster", "info", **at_one)
            )
        ),
        "broker 2 is fenced",
        seconds=DEADLINE_SECONDS,
    )
    assert found(1) == {
        "brokers_fenced": ["broker 2"],
        "partitions_with_offline_replicas": ["both-0", "both-1"],
        "partitions_under_replicated": ["both-0", "both-1"],
    }


def test_a_move_tells_of_the_broker_that_it_waits_for(rows: Callable[..., Rows], members: list[Any]) -> None:
    one, two = members
    at_one = {"bootstrap": one.bootstrap_servers}
    rows("topics", "create", "waits", "-p", "1", "-r", "1", **at_one)
    wait_until(lambda: len(rows("topics", "list", "waits", **at_one)) == 1, "the topic is there", seconds=60)
    rows("topics", "move", "waits", "--to", "1", "--wait", **at_one)
    two.kill()
    move = [sys.executable, "-m", "odradek", "topics", "move", "waits", "-b", one.bootstrap_servers]
    move += ["--to", "1,2", "--replicas", "2", "--wait"]
    with subprocess.Popen(move, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as moving:
        assert moving.stderr is not None
        assert moving.stderr.readline() == "odradek: it waits for broker 2, which does not serve now\n"
        two.start()
        assert moving.wait(DEADLINE_SECONDS) == 0
    rows("topics", "delete", "waits", **at_one)
