"""Meters for the quotas of clients, by the options of a broker or a controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.security.client_meters import QuotaMeters

DROP_INTERVAL_MS = 600_000
"""From one call of `drop_idle` to the next."""


def new_meters(config: BrokerConfig, now_ms: Callable[[], int]) -> QuotaMeters:
    """`now_ms` is a monotonic clock. Imports the meters, which most nodes never need."""
    from odradek.coordinator.security.client_meters import QuotaMeters, Windows

    values = config.values
    windows = Windows(values["quota.window.num"], values["quota.window.size.seconds"] * 1000)
    window_s = values["controller.quota.window.size.seconds"]
    of_controller = Windows(values["controller.quota.window.num"], window_s * 1000)
    return QuotaMeters(now_ms, windows, of_controller)
