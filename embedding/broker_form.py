"""How a broker of a program runs: in a thread (`broker_thread.py`), or as a process (`broker_process.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

STOP_TIMEOUT_S = 10.0


class BrokerStartError(RuntimeError):
    """The broker could not start; the text is the reason, as `odradek serve` prints it."""


class BrokerForm(Protocol):
    """How a broker runs: in a thread or as a process."""

    def start(self, port: int, timeout_s: float) -> int: ...

    def stop(self) -> None: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def pid(self) -> int | None: ...

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any: ...

    def log(self) -> bytes: ...

    @property
    def console_url(self) -> str:
        """Where browsers find its web console; empty: it has none, or does not run."""


def text_of(value: Any) -> str:
    """A Python value as Kafka's files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return value if isinstance(value, str) else str(value)


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
