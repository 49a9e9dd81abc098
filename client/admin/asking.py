"""Which broker is asked, and refusals of single things."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.client_error import ClientError, error_of, refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.schema import Message

__all__ = ["TIMEOUT_MS", "Outcome", "Refused", "all_brokers", "ask_controller", "controller_of", "outcome"]

TIMEOUT_MS = 30_000
"""For requests that a broker answers when its change has been made."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One thing of a request that the brokers refused."""

    name: str
    error: ClientError


Outcome = list[Refused]
"""The refusals of a request; the other things were done."""


def outcome(doing: str, answers: Sequence[tuple[str, int, str | None]]) -> Outcome:
    """The refusals among the answers: name, error code and message of each thing. `doing` begins the
    sentence before the name: "deleting topic"."""
    return [
        Refused(name, refusal(f"{doing} {name}", error_of(code), message))
        for name, code, message in answers
        if code != ErrorCode.NONE
    ]


def controller_of(cluster: Cluster) -> int:
    """The node that changes metadata; ANY_NODE where brokers pass requests on to it."""
    controller: int = cluster.ask(ANY_NODE, MetadataRequest(topics=[])).controller_id
    return controller if controller >= 0 else ANY_NODE


def ask_controller(cluster: Cluster, request: Message) -> Any:
    """The controller's response; asked again while it moves."""
    return cluster.ask(controller_of(cluster), request)


def all_brokers(cluster: Cluster) -> list[int]:
    """The ids of the brokers that are there, sorted."""
    answer = cluster.ask(ANY_NODE, MetadataRequest(topics=[]))
    return sorted(broker.node_id for broker in answer.brokers)
