"""`odradek groups` in a cluster of two brokers, ours or Kafka's, one of which dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from odradek.commands.main import main

Rows = list[dict[str, Any]]
SHORT_SESSION = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}


@pytest.fixture(scope="module")
def members(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    member = KafkaMember if request.config.getoption("--broker") == "kafka" else OdradekMember
    with (
        Controllers(SHORT_SESSION, host=shared_host()) as controllers,
        member(controllers, 1) as one,
        member(controllers, 2) as two,
    ):
        yield [one, two]


def test_each_group_is_asked_at_its_coordinator(
    rows: Callable[..., Rows], members: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = members
    at_one = {"bootstrap": one.bootstrap_servers}
    client = KafkaPythonClient(one.bootstrap_servers)
    rows("topics", "create", "both", "-p", "4", "-r", "2", **at_one)
    wait_until(
        lambda: "both" in [row["topic"] for row in rows("topics", "list", **at_one)], "the topic is there"
    )
    client.produce("both", [Message(value=b"v", partition=number % 4) for number in range(40)])
    names = [f"group-{number}" for number in range(8)]
    for number, name in enumerate(names):
        client.commit(name, "both", dict.fromkeys(range(4), number))
    listed = rows("groups", "list", "--lag", **at_one)
    assert {row["coordinator"] for row in listed} == {1, 2}
    assert [(row["group"], row["lag"]) for row in listed] == [
        (name, 4 * (10 - number)) for number, name in enumerate(names)
    ]
    described = rows("groups", "describe", "group-*", **at_one)
    assert [(row["group"], row["partition"], row["lag"]) for row in described] == [
        (name, partition, 10 - number) for number, name in enumerate(names) for partition in range(4)
    ]
    assert all(row["lag_seconds"] is not None for row in described)
    assert len(rows("producers", "both", **at_one)) == 4
    deleted = rows("groups", "delete", *names[6:], **at_one)
    assert [row["deleted"] for row in deleted] == [True, True]
    at = {row["group"]: row["coordinator"] for row in listed}
    two.kill()
    wait_until(
        lambda: {row["broker"] for row in rows("cluster", "info", **at_one) if not row["fenced"]} == {1},
        "broker 2 is fenced",
    )
    left = [name for name in names[:6] if at[name] == 1]
    gone = [name for name in names[:6] if at[name] == 2]
    assert left
    assert gone
    assert [row["group"] for row in rows("groups", "list", **at_one)] == left
    assert len(rows("groups", "describe", *left, **at_one)) == 4 * len(left)
    capsys.readouterr()
    ended = main(["groups", "describe", gone[0], "-b", one.bootstrap_servers, "--timeout", "1"])
    assert ended == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith(f"odradek: finding the coordinator of group {gone[0]} failed for 1 s"), (
        sentence
    )
