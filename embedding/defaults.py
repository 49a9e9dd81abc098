"""Options that brokers and clusters in a program have where it says nothing of them."""

from typing import Any, Final

EMBEDDED_OPTIONS: Final[dict[str, Any]] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
}
"""The members of a group come from one program, which would only wait 3 s; a server waits for others."""
