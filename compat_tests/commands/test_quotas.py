"""`odradek quotas` says what Kafka's own tool says: no client library for Python knows quotas."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from compat_tests.clients import wait_until
from compat_tests.reference import CONFIG_COMMAND, kafka_tool

Rows = list[dict[str, Any]]
WORDS = {"user-principal": "user", "client-id": "client-id", "ip": "ip"}


def described(bootstrap: str, *types: str) -> list[Any]:
    """Entity, key and value of each quota, sorted, as the tool prints them."""
    asked = [word for kind in types for word in ("--entity-type", kind)]
    run = kafka_tool(CONFIG_COMMAND, "--bootstrap-server", bootstrap, "--describe", *asked)
    found = []
    for line in run.stdout.splitlines():
        entity, are, values = line.partition(" are ")
        if are and entity.startswith("Quota configs"):
            names = re.findall(r"(?:the default |)(user-principal|client-id|ip)(?: '([^']*)'|)", entity)
            named = {WORDS[kind]: name or None for kind, name in names}
            for one in values.split(", "):
                key, _, value = one.partition("=")
                found.append((str(named), key, float(value)))
    return sorted(found)


def told(rows: Rows, *types: str) -> list[Any]:
    return sorted(
        (str(row["entity"]), row["key"], float(row["value"])) for row in rows if tuple(row["entity"]) == types
    )


def test_quotas_are_those_of_the_tool_of_kafka(rows: Callable[..., Rows], bootstrap: str) -> None:
    rows("quotas", "set", "producer_byte_rate=1024", "request_percentage=12.5", "--user", "ann")
    rows("quotas", "set", "consumer_byte_rate=3000000000", "--user-defaults")
    rows("quotas", "set", "consumer_byte_rate=7", "--user", "ann", "--client-id-defaults")
    rows("quotas", "set", "connection_creation_rate=100", "--ip", "192.0.2.7")
    wait_until(lambda: len(rows("quotas", "list")) == 5, "the quotas are there")
    mine = rows("quotas", "list")
    assert told(mine, "user") == described(bootstrap, "users") != []
    assert told(mine, "user", "client-id") == described(bootstrap, "users", "clients") != []
    assert told(mine, "ip") == described(bootstrap, "ips") != []
    planned = rows("quotas", "remove", "--user", "ann", "--dry-run")
    assert rows("quotas", "list") == mine
    assert rows("quotas", "remove", "--user", "ann") == planned
    wait_until(lambda: len(rows("quotas", "list")) == 3, "the quotas of ann are gone")
    assert [row for row in rows("quotas", "list") if row["entity"] == {"user": "ann"}] == []
    rows("quotas", "remove", "--user-defaults")
    rows("quotas", "remove", "--user", "ann", "--client-id-defaults")
    rows("quotas", "remove", "--ip", "192.0.2.7")
    wait_until(lambda: rows("quotas", "list") == [], "no quotas are left")
