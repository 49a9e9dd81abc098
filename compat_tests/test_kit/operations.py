"""Operations of the clients: what each needs before, what it finds, and whether it has had its effect.

All of it is asked of the broker by single requests, whatever the client under test says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compat_tests.test_kit.clients import RECORDS, VALUES
from odradek.wire.messages import (
    describe_configs,
    describe_share_group_offsets,
    metadata,
)
from tests.server.clocked import Client

EFFECT_SECONDS = 60.0
RETENTION_MS = "86400001"
TOPIC_RESOURCE = 2
READ_COMMITTED = 1
LOG_START = -2
Asking = Callable[[Client, str], Any]


def _with_topic(client: Client, name: str) -> None:
    client.create(name)


def _with_records(client: Client, name: str) -> None:
    client.create(name)
    client.produce(*((None, value.encode()) for value in VALUES), name=name)


def _with_offsets(client: Client, name: str) -> None:
    _with_records(client, name)
    client.commit(RECORDS, group=name, name=name)


def _with_share_group(client: Client, name: str) -> None:
    _with_records(client, name)
    client.configure_group(name, **{"share.auto.offset.reset": "earliest"})


def _with_share_member(client: Client, name: str) -> None:
    client.create(name)
    assert client.share_beat(group=name).error_code == 0


def _nothing(client: Client, name: str) -> None:
    """The operation needs nothing."""


def _values(client: Client, name: str, isolation: int = 0) -> list[str]:
    return [value.decode() for _, _, _, value in client.records(name, isolation=isolation)]


def _partitions(client: Client, name: str) -> int:
    """0: there is no such topic."""
    wanted = [metadata.MetadataRequestTopic(name=name)]
    request = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return len(client.ask(request, 12).topics[0].partitions)


def _retention(client: Client, name: str) -> str:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["retention.ms"]
    )
    response = client.ask(describe_configs.DescribeConfigsRequest(resources=[resource]), 4)
    return str(response.results[0].configs[0].value)


def _share_lag(client: Client, name: str) -> int:
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
        topic_name=name, partitions=[0]
    )
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=[topic])
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[group])
    (found,) = client.ask(request, 1).groups
    return int(found.topics[0].partitions[0].lag) if found.topics else -1


def _in_transaction(client: Client, name: str) -> tuple[list[str], int]:
    return _values(client, name, READ_COMMITTED), client.committed(name, name)


@dataclass(frozen=True)
class Operation:
    """One operation of a client."""

    before: Asking = _nothing
    found: list[str] | None = field(default_factory=list)
    """Values that the client has then; None: whatever they are."""
    state: Asking | None = None
    """State that the broker has of it; None: it only reads."""
    undone: Any = None
    """State without its effect."""
    done: Any = None
    """State with its effect, which has happened once."""

    def has_happened(self, client: Client, name: str) -> bool:
        """Whether the state is as with the effect; it may have to be waited for, as markers of a transaction
        are written after the response. AssertionError: it is as neither with it nor without it."""
        assert self.state is not None
        deadline = time.monotonic() + EFFECT_SECONDS
        while True:
            state = self.state(client, name)
            if state in (self.done, self.undone):
                return bool(state == self.done)
            assert time.monotonic() < deadline, f"state is {state}"
            time.sleep(0.05)


OPERATIONS = {
    "produce": Operation(_with_topic, ["0", "1", "2"], _values, [], VALUES),
    "transact": Operation(_with_topic, [], _in_transaction, ([], -1), (VALUES, RECORDS)),
    "read": Operation(_with_records, VALUES),
    "read_validated": Operation(_with_records, VALUES),
    "group": Operation(_with_records, VALUES, lambda c, n: c.committed(n, n), -1, RECORDS),
    "consumer": Operation(_with_records, VALUES, lambda c, n: c.committed(n, n), -1, RECORDS),
    "share": Operation(_with_share_group, VALUES, lambda c, n: bool(_share_lag(c, n)), True, False),
    "create_topics": Operation(_nothing, [], _partitions, 0, 1),
    "delete_topics": Operation(_with_topic, [], _partitions, 1, 0),
    "create_partitions": Operation(_with_topic, [], _partitions, 1, 3),
    "describe_configs": Operation(_with_topic, ["604800000"]),
    "alter_configs": Operation(_with_topic, [], _retention, "604800000", RETENTION_MS),
    "delete_records": Operation(_with_records, [], lambda c, n: c.offset_at(LOG_START, n), 0, 2),
    "list_groups": Operation(_with_offsets, ["true"]),
    "describe_groups": Operation(_with_offsets, ["empty"]),
    "delete_groups": Operation(_with_offsets, [], lambda c, n: c.group_state(n), "Empty", None),
    "delete_group_offsets": Operation(_with_offsets, [], lambda c, n: c.committed(n, n), RECORDS, -1),
    "describe_topics": Operation(_with_topic, ["1"]),
    "describe_cluster": Operation(_nothing, ["1"]),
    "describe_log_dirs": Operation(_with_topic, ["1"]),
    "describe_producers": Operation(_with_topic, ["0"]),
    "list_transactions": Operation(),
    "list_config_resources": Operation(),
    "list_reassignments": Operation(_nothing, ["0"]),
    "describe_quorum": Operation(_nothing, ["1"]),
    "describe_quotas": Operation(),
    "describe_share_groups": Operation(_with_share_member, ["stable"]),
    "list_share_group_offsets": Operation(_with_share_member, ["1"]),
}
