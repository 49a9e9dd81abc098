"""The options of a member of a group, with the names and the defaults of Java's consumer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from odradek.client.client_error import ClientError

# The first one of each is the default.
PROTOCOLS = ("classic", "consumer")
RESETS = ("latest", "earliest", "none")
_RANGE = ("range", "org.apache.kafka.clients.consumer.RangeAssignor")
_TIMES = {
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
}
_OF_THE_BROKER = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""Options that the broker decides in a group of the consumer protocol (KIP-848)."""
MEMBER_OPTIONS = frozenset(
    {
        *_TIMES,
        "auto.offset.reset",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "partition.assignment.strategy",
    }
)
"""Options that `MemberSettings.from_options` reads."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member joins its group; times in milliseconds."""

    protocol: str = "classic"
    """classic, or consumer (KIP-848)."""
    session_timeout_ms: int = 45_000
    """Without a heartbeat for so long the group goes on without the member."""
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Longest time that a rebalance waits for the member."""
    auto_offset_reset: str = "latest"
    """Where to begin in a partition without a commit: earliest, latest, or none: a failure."""
    instance_id: str | None = None
    """Id of a static member, which keeps its partitions over a restart."""
    remote_assignor: str | None = None
    """Assignor that the broker is asked for in a group of the consumer protocol: uniform or range."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """From options with Java's names; others are ignored. ClientError for a wrong value, for a strategy
        other than range, and for options that the chosen protocol leaves to the broker."""
        values: dict[str, int | str] = {}
        for name, attribute in _TIMES.items():
            if name in options:
                values[attribute] = _milliseconds(name, options[name])
        protocol = options.get("group.protocol", PROTOCOLS[0]).lower()
        _check_choice("group.protocol", protocol, PROTOCOLS)
        reset = options.get("auto.offset.reset", RESETS[0]).lower()
        _check_choice("auto.offset.reset", reset, RESETS)
        _check_strategies(options.get("partition.assignment.strategy"))
        if protocol == "consumer":
            for name in _OF_THE_BROKER:
                if name in options:
                    raise ClientError(
                        f"the option {name} is not for group.protocol=consumer, where the broker decides that"
                    )
        elif "group.remote.assignor" in options:
            raise ClientError("the option group.remote.assignor is for group.protocol=consumer alone")
        settings = cls(
            **values,  # type: ignore[arg-type]
            protocol=protocol,
            auto_offset_reset=reset,
            instance_id=options.get("group.instance.id") or None,
            remote_assignor=options.get("group.remote.assignor") or None,
        )
        if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
            raise ClientError("the option heartbeat.interval.ms has to be smaller than session.timeout.ms")
        return settings


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ClientError(f"the option {name} is {value!r}: it has to be one of {', '.join(choices)}")


def _check_strategies(text: str | None) -> None:
    wanted = [] if text is None else [one.strip() for one in text.split(",")]
    for one in wanted:
        if one not in _RANGE:
            raise ClientError(
                f"the option partition.assignment.strategy has {one!r}: this client assigns by range alone"
            )


def _milliseconds(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text.strip()):
        raise ClientError(f"the option {name} is {text!r}: it has to be a number of milliseconds from 1 on")
    return int(text)
