"""Delegation tokens in a cluster of Kafka's controllers, one of Kafka's brokers and one node of ours: each
makes, changes and takes the tokens of the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.security.test_sasl_cluster import OF_BROKERS, SASL, Nodes
from compat_tests.token_client import Client, creation, described, ids
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

SECRET = {"delegation.token.secret.key": "a-secret-of-the-whole-cluster"}
PROPERTIES = {**OF_BROKERS, **SECRET, "connections.max.reauth.ms": "0"}
SECONDS = 60


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with (
        Controllers({**SASL, **SECRET}, host=shared_host()) as controllers,
        OdradekMember(controllers, 1, PROPERTIES) as ours,  # type: ignore[arg-type]
        KafkaMember(controllers, 2, PROPERTIES, host=shared_host()) as theirs,  # type: ignore[arg-type]
    ):
        assert isinstance(theirs, KafkaMember)
        yield Nodes(ours, theirs)


def port_of(node: Any) -> int:
    return int(node.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "theirs"])
def test_a_token_of_one_node_counts_at_the_other(nodes: Nodes, is_ours: bool) -> None:
    sides = [port_of(nodes.ours), port_of(nodes.theirs)]
    maker, other = sides if is_ours else sides[::-1]
    with Client(maker) as client, Client(other) as elsewhere:
        client.as_user("ann")
        elsewhere.as_user("ann")
        both = (client, elsewhere)
        made = client.ask(creation(3, renewers=[("User", "bob")]), 3)
        assert (made.error_code, len(made.hmac)) == (0, 64)
        wait_until(lambda: all(made.token_id in ids(one) for one in both), "the token", seconds=SECONDS)
        hmacs = {bytes(token.hmac) for one in both for token in described(one).tokens}
        assert hmacs == {bytes(made.hmac)}
        for port in sides:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                with Client(port) as by_token:
                    assert by_token.with_token(made, mechanism, "tokenauth=true") == 0
                    assert by_token.ask(creation(3), 3).error_code == 64
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000)
        renewed = elsewhere.ask(renewal, 2)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
        expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert elsewhere.ask(expiry, 2).error_code == 0
        wait_until(lambda: not any(ids(one) for one in both), "its end", seconds=SECONDS)
    with Client(sides[0]) as client:
        assert client.with_token(made, "SCRAM-SHA-256", "tokenauth=true") == 58


def test_no_secret_is_in_the_log_of_a_node(nodes: Nodes) -> None:
    assert "ready on" in nodes.ours.log
    assert SECRET["delegation.token.secret.key"] not in nodes.ours.log
