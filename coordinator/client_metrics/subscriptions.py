"""Subscriptions to client metrics: their settings, and the clients that they match.

Kafka matches with Java's regular expressions, here they have the syntax of RE2: matching takes time in
proportion to the text, whatever the expression.

Source: ClientMetricsConfigs and ClientMetricsInstanceMetadata of Kafka 4.3; KIP-714.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from odradek.config.options import CLIENT_METRICS_OPTIONS
from odradek.coordinator.regular_expression import RegularExpression
from odradek.wire.errors import ErrorCode, KafkaError

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
ALL_METRICS = "*"
_INTERVAL = CLIENT_METRICS_OPTIONS[INTERVAL]
_ANY_INTERVAL = replace(_INTERVAL, low=None, high=None)
DEFAULT_INTERVAL_MS: int = _INTERVAL.default_value
TEXT_CHARACTERS_MAX = 256
"""Bound of a client's texts about itself: the rest is neither matched nor kept."""


class Client(NamedTuple):
    """A client, as it shows itself; the names of the fields are those in `match`."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    """Prefixes of names, or `*`."""
    interval_ms: int
    match: Mapping[str, RegularExpression]
    """By field of `Client`; all have to match."""

    def has(self, client: Client) -> bool:
        """Whether it is for this client."""
        for name, expression in self.match.items():
            text: str | None = getattr(client, name)
            if text is None or not expression.matches(text):
                return False
        return True


def check_subscription(name: str, configs: Mapping[str, str]) -> None:
    """Refuse with KafkaError what Kafka refuses; INVALID_REQUEST and INVALID_CONFIG as there."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A subscription to client metrics must have a name.")
    subscription_of(configs)


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """The meaning of these settings. KafkaError: they have none; a cluster's controllers may hold expressions
    of Java that RE2 does not know."""
    unknown = [name for name in configs if name not in CLIENT_METRICS_OPTIONS]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown[0]}")
    try:
        interval_ms: int = _ANY_INTERVAL.parse(configs.get(INTERVAL, str(DEFAULT_INTERVAL_MS)))
    except ValueError as error:
        raise _invalid(str(error)) from None
    metrics, match = (_items(name, configs.get(name, "")) for name in (METRICS, MATCH))
    try:
        _INTERVAL.parse(str(interval_ms))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return Subscription(metrics, interval_ms, dict(map(_pattern, match)))


def _items(name: str, text: str) -> tuple[str, ...]:
    items: tuple[str, ...] = CLIENT_METRICS_OPTIONS[name].parse(text)
    if "" in items:
        raise _invalid(f"{name} must not have empty items.")
    return items


def _pattern(item: str) -> tuple[str, RegularExpression]:
    # Java's String.split leaves out empty texts at the end.
    parts = item.rstrip("=").split("=")
    if len(parts) != 2 or (name := parts[0].strip()) not in Client._fields:
        raise _invalid(f"Illegal client matching pattern: {item}")
    try:
        return name, RegularExpression(parts[1].strip())
    except KafkaError as error:
        raise _invalid(f"Illegal client matching pattern: {item}: {error.message}") from None


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, sentence)
