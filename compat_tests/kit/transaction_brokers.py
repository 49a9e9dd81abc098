"""The brokers of these tests: with short transaction chores, killed for real, behind a proxy if wanted.

`--broker=kafka` runs every test against Apache Kafka itself, to prove that the test is right.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.differential.harness import Side
from compat_tests.kit.proxy import JudgingProxy
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
"""A producer that died is found within its time-out and half a second; few partitions load quickly."""

COORDINATOR_SECONDS = 60

NO_MARKER = (
    "The coordinator that starts after the kill aborts the open transaction by its time-out and writes "
    "CompleteAbort, but no marker into the partitions: with an interval of 500 ms it looks for such "
    "transactions before it knows who leads them (findings/kafka-abort-without-markers.sh)."
)
LATE_END = "copies are missing"
KNOWN_OF_KAFKA = {
    "does not say where it is in .*: UNSTABLE_OFFSET_COMMIT": f"{NO_MARKER} Its offsets stay pending.",
    "a transaction is still open": f"{NO_MARKER} The last stable offset stays at its first record.",
    LATE_END: "An EndTxn that is served late ends the next transaction (KAFKA-17754, KIP-890).",
}
"""Failure -> its reason. The first two were seen with Apache Kafka 4.4.0 at each look at the loops in
`test_loops.py`: `kafka-transactions describe` shows CompleteAbort, and `describe-producers` the open
transaction. The last was seen with 4.3.1 on a busy machine. Only the protocol before version 2 allows for it:
https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense"""


class TransactionBroker:
    """Apache Kafka or Odradek, with the same few methods."""

    def __init__(
        self, broker: odradek.Broker | reference.Kafka, *, is_odradek: bool, proxy: JudgingProxy | None = None
    ) -> None:
        self._broker, self.is_odradek, self._proxy = broker, is_odradek, proxy
        self.data_dir: pathlib.Path = broker.data_dir

    @property
    def bootstrap(self) -> str:
        """Where clients begin: the proxy's address where there is one."""
        return self.proxy.bootstrap if self._proxy is not None else self.direct

    @property
    def direct(self) -> str:
        """The broker's own address, for a request that answers by itself."""
        return self._broker.bootstrap_servers

    @property
    def proxy(self) -> JudgingProxy:
        assert self._proxy is not None, "this broker was started without a proxy"
        return self._proxy

    def kill(self) -> None:
        """SIGKILL."""
        self._broker.kill()

    def stop(self) -> None:
        """As its operator does."""
        self._broker.stop()

    def start(self) -> None:
        self._broker.start()

    def crash_and_restart(self) -> None:
        self.kill()
        self.start()

    def wait_until_coordinating(self) -> None:
        """Until both kinds of coordinator answer, so that no test pays for the first use of their topics."""
        side = Side("broker", self.direct)

        def answers() -> bool:
            return all(
                side.ask(FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind), 4)
                .coordinators[0]
                .error_code
                == 0
                for kind in (0, 1)
            )

        try:
            wait_until(answers, "the coordinators answer", seconds=COORDINATOR_SECONDS)
        finally:
            side.close()


class _ProxiedKafka(reference.Kafka):
    """Has a second listener, which advertises a proxy's address; its requests to itself go by the first."""

    def __init__(self, version: str, properties: Mapping[str, str]) -> None:
        super().__init__(version, properties)
        self._proxied_port = reference.free_port()
        self.proxy = JudgingProxy(self._proxied_port)
        ours = f"PLAINTEXT://127.0.0.1:{self.port}"
        controller = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        advertised_controller = f",{controller}" if self.version == reference.CURRENT else ""
        self._properties |= {
            "listeners": f"{ours},PROXIED://127.0.0.1:{self._proxied_port},{controller}",
            "advertised.listeners": f"{ours},PROXIED://{self.proxy.bootstrap}{advertised_controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
        }


Start = Callable[..., TransactionBroker]
"""(options=..., proxied=...) -> a running broker, which ends with the test that asked for it."""


@contextlib.contextmanager
def starting(*, is_odradek: bool) -> Iterator[Start]:
    """Gives what starts brokers; all of them are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def start(
            options: Mapping[str, Any] | None = None,
            *,
            proxied: bool = False,
            version: str = reference.CURRENT,
        ) -> TransactionBroker:
            settings = {**SETTINGS, **(options or {})}
            if is_odradek:
                running = _odradek(stack, settings, proxied)
            else:
                running = _kafka(
                    stack, {name: str(value) for name, value in settings.items()}, proxied, version
                )
            running.wait_until_coordinating()
            return running

        yield start


@contextlib.contextmanager
def broken_by_kafka(broker: TransactionBroker, *, speaks_version_2: bool = False) -> Iterator[None]:
    """Around transactions while the broker is killed. Odradek's failures are failures, and those of Apache
    Kafka that `KNOWN_OF_KAFKA` does not have. `speaks_version_2`: whether the client does."""
    try:
        yield
    except AssertionError as failure:
        reason = known_reason(str(failure), speaks_version_2)
        if broker.is_odradek or reason is None:
            raise
        pytest.xfail(f"{reason} Apache Kafka after a kill: {str(failure)[:300]}")


def known_reason(failure: str, speaks_version_2: bool = False) -> str | None:
    """The reason in `KNOWN_OF_KAFKA`."""
    for text, reason in KNOWN_OF_KAFKA.items():
        if re.search(text, failure) and not (speaks_version_2 and text == LATE_END):
            return reason
    return None


def _odradek(stack: contextlib.ExitStack, settings: dict[str, Any], proxied: bool) -> TransactionBroker:
    if not proxied:
        plain = stack.enter_context(odradek.Broker(process=True, options=settings))
        return TransactionBroker(plain, is_odradek=True)
    port = reference.free_port()
    proxy = JudgingProxy(port)
    stack.callback(proxy.close)
    settings["advertised.listeners"] = f"PLAINTEXT://{proxy.bootstrap}"
    broker = stack.enter_context(odradek.Broker(process=True, port=port, options=settings))
    return TransactionBroker(broker, is_odradek=True, proxy=proxy)


def _kafka(
    stack: contextlib.ExitStack, settings: dict[str, str], proxied: bool, version: str
) -> TransactionBroker:
    if not proxied:
        return TransactionBroker(stack.enter_context(reference.Kafka(version, settings)), is_odradek=False)
    kafka = _ProxiedKafka(version, settings)
    stack.callback(kafka.proxy.close)
    return TransactionBroker(stack.enter_context(kafka), is_odradek=False, proxy=kafka.proxy)
