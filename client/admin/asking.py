"""Which broker is asked, and refusals of single things."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek.client.client_error import ClientError, Disconnected, Unreachable, error_codes, refusal
from odradek.client.cluster import ANY_NODE, Cluster, Target
from odradek.wire.errors import ErrorCode, error_of, is_retriable
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.schema import Message

TIMEOUT_MS = 30_000
"""For requests that a broker answers when its change has been made."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Refused:
    """One thing of a request that the brokers refused."""

    name: str
    error: ClientError


Outcome = list[Refused]
"""The refusals of a request; the other things were done."""


def outcome(doing: str, responses: Sequence[tuple[str, int, str | None]]) -> Outcome:
    """The refusals among the responses: name, error code and message of each thing. `doing` begins the
    sentence before the name: "deleting topic"."""
    return [
        Refused(name, refusal(f"{doing} {name}", error_of(code), message))
        for name, code, message in responses
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
    response = cluster.ask(ANY_NODE, MetadataRequest(topics=[]))
    return sorted(broker.node_id for broker in response.brokers)


def ask_each(
    cluster: Cluster, brokers: Iterable[int], request: Message, silent: list[Refused] | None = None
) -> Iterator[tuple[int, Any]]:
    """Each broker with its response. One that does not answer is added to `silent`; without that,
    ClientError."""
    for broker in brokers:
        try:
            response = cluster.ask(broker, request)
        except Unreachable as error:
            if silent is None:
                raise
            silent.append(Refused(f"broker {broker}", error))
        else:
            yield broker, response


def ask_in_batches(
    cluster: Cluster,
    nodes: Mapping[Key, int],
    target_of: Callable[[Key], Target],
    request_of: Callable[[list[Key]], Message],
    parts_of: Callable[[Any], Iterable[tuple[Key, Any]]],
    version_max: int | None = None,
) -> dict[Key, Any]:
    """The part of each key in the responses, one request to each node for all its keys.

    `nodes` has where each key was last seen. A key that is not served there any more is asked alone, at its
    `target_of`, with retries. ClientError for what fails so, too; other codes are in the parts.
    """
    by_node: dict[int, list[Key]] = {}
    for key, node in nodes.items():
        by_node.setdefault(node, []).append(key)
    found: dict[Key, Any] = {}
    for node, keys in by_node.items():
        try:
            connection = cluster.connect(node)
            request = request_of(keys)
            response = connection.ask(request, connection.version_of(type(request), version_max))
        except Disconnected as error:
            cluster.failed(node, error)
            continue
        found.update(
            (key, part) for key, part in parts_of(response) if not any(map(is_retriable, error_codes(part)))
        )
    for key in nodes:
        if key not in found:
            found.update(parts_of(cluster.ask(target_of(key), request_of([key]), version_max=version_max)))
            if key not in found:
                raise ClientError(f"{target_of(key)} answers without what was asked for")
    return {key: found[key] for key in nodes}
