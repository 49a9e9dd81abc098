"""Levels of loggers (resources of the type BROKER_LOGGER), set and refused as in Kafka 4.3.

Each side has loggers of its own; one of them stands for the other.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.test_settings import complete, incremental, is_older, partly, whole
from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.wire.messages.alter_configs import AlterConfigsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

LOGGER = 8
OWN, ROOT = "OWN", "root"
NAMES = {"kafka": "kafka.server.ReplicaManager", "odradek": "odradek.fetch"}
Operation = tuple[str, int, str | None]


@pytest.fixture(autouse=True)
def _only_newer(pair: Pair) -> None:
    if is_older(pair):
        pytest.skip("Kafka 3.9 logs with another library")


def name_of(side: Side, name: str) -> str:
    return NAMES[side.name] if name == OWN else name


def alter(pair: Pair, *operations: Operation, broker: str = "1", validate_only: bool = False) -> None:
    def build(side: Side) -> Any:
        own = [(name_of(side, name), kind, level) for name, kind, level in operations]
        return incremental(partly(LOGGER, broker, *own), dry=validate_only)

    for version in pair.versions(IncrementalAlterConfigsRequest):
        pair.ask(build, version, f"{broker!r} {operations}")


def compare_levels(pair: Pair, *names: str) -> list[str]:
    """The levels, which both tell alike."""

    def build(side: Side) -> Any:
        side.remember("logger", NAMES[side.name])
        keys = [name_of(side, name) for name in names]
        resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=keys)
        return DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)

    theirs, _ = pair.ask(build, 4, f"{names}")
    return [one.value for one in theirs.results[0].configs]


def test_levels_are_set_and_deleted_alike(pair: Pair) -> None:
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
        alter(pair, (OWN, SET, level))
        assert compare_levels(pair, OWN) == [level]
        alter(pair, (OWN, SET, "INFO"), validate_only=True)
        assert compare_levels(pair, OWN) == [level]
    alter(pair, (ROOT, SET, "ERROR"), (OWN, DELETE, None))
    assert compare_levels(pair, OWN) == compare_levels(pair, ROOT) == ["ERROR"]
    alter(pair, (ROOT, SET, "WARN"))
    assert compare_levels(pair, OWN, "nowhere") == ["WARN"]


def test_levels_are_refused_alike(pair: Pair) -> None:
    for level in ("OFF", "ALL", "info", "", "10", None):
        alter(pair, (OWN, SET, level))
    for operations in (
        [(OWN, SET, "ERROR"), ("nowhere", SET, "INFO")],
        [("nowhere", DELETE, None)],
        [(ROOT, DELETE, None)],
        [("", SET, "INFO")],
        [(ROOT, APPEND, "INFO")],
        [(ROOT, SUBTRACT, "INFO")],
        [(OWN, SET, "INFO"), (OWN, SET, "WARN")],
        [],
    ):
        alter(pair, *operations)  # type: ignore[arg-type]
    for broker in ("2", "", "x"):
        alter(pair, (ROOT, SET, "INFO"), broker=broker)
    for configs in ({ROOT: "INFO"}, {}):
        request = complete(whole(LOGGER, "1", *configs.items()))
        for version in pair.versions(AlterConfigsRequest):
            pair.ask(lambda _: request, version, f"{configs}")
