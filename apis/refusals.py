"""Requests that are refused as a whole: the response that has one error code for everything that is named.

The places of the code follow from the declaration of the response: `error_code` and `error_message` at the
top, and the results of a response that names the items of its request. All other fields have their defaults,
but for those in `_FIELDS`.

Source: `getErrorResponse` of the requests of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.apis.access import CODES
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.messages import find
from odradek.wire.schema import Array, fields_of

if TYPE_CHECKING:
    from odradek.apis.access import Needs
    from odradek.apis.api import Handler, RequestContext
    from odradek.wire.schema import Message

__all__ = ["answer", "has_place_for_code", "refuse"]

FIRST_VERSION_WITH_NULL_PROTOCOL = 7
"""Of JoinGroup."""


def answer(handle: Handler, needs: Needs, request: Any, context: RequestContext) -> Any:
    """Of a request of which something is refused: the refusal of all of it, or the answer of the handler."""
    code = refusal_of_whole(needs, request, context)
    if code is None:
        return handle(request, context)
    return refuse(request, context.api_version, code)


def refusal_of_whole(needs: Needs, request: Any, context: RequestContext) -> ErrorCode | None:
    """The code for the whole request, by the first need for it that is refused."""
    for need in needs:
        if need.is_whole and need.names is not None:
            for name in need.names(request):
                if context.refuses(need.operation, need.resource_type, name):
                    return CODES[need.resource_type]
    return None


def has_place_for_code(api_key: int, version: int) -> bool:
    """Whether `refuse` can say the code: once for all, or in the results of what the request names."""
    response: Any = find(api_key)[1]
    return api_key in _RESULTS or any(
        field.name == "error_code" and field.exists_in(version) for field in fields_of(response)
    )


def refuse(request: Message, version: int, code: ErrorCode) -> Any:
    """The response to a request of this version that refuses everything that it names."""
    response: Any = find(request.api_key)[1]
    message = None if request.api_key in _WITHOUT_MESSAGE else error_message(code)
    values = {"error_code": code, "partition_error_code": code, "error_message": message}

    def error_in(struct: Any) -> dict[str, Any]:
        return {
            field.name: values[field.name]
            for field in fields_of(struct)
            if field.name in values and field.exists_in(version)
        }

    fields = error_in(response)
    others = _FIELDS.get(request.api_key)
    if others is not None:
        fields |= others(version)
    results = _RESULTS.get(request.api_key)
    if results is not None:
        name, items = results
        fields[name] = _results(response, name, items(request), error_in)
    return response(**fields)


Item = tuple[dict[str, Any], "tuple[str, Iterable[Item]] | None"]
"""The beginning of a result; and the list in it whose items have the code instead, if there is one."""
Items = Callable[[Any], Iterable[Item]]


def _results(
    struct: Any, name: str, items: Iterable[Item], error_in: Callable[[Any], dict[str, Any]]
) -> list[Any]:
    (field,) = [field for field in fields_of(struct) if field.name == name]
    assert isinstance(field.type, Array)
    item_type: Any = field.type.item
    return [
        item_type(**start, **error_in(item_type))
        if inner is None
        else item_type(**start, **{inner[0]: _results(item_type, *inner, error_in)})
        for start, inner in items
    ]


def _of(name: str, *copied: str) -> Items:
    """For each item of the request's list `name` a result that repeats some of its fields."""
    return lambda request: [
        ({field: getattr(item, field) for field in copied}, None) for item in getattr(request, name)
    ]


def _partitions(
    topics: str,
    partitions: str,
    index: str,
    *,
    copied: Mapping[str, str],
    results: str = "partitions",
    result_index: str = "partition_index",
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Items:
    """For each topic of the request's list `topics` a result with its partitions. Partitions are numbers, or
    have their number in the field `index`. `copied` are the fields of a topic, by their names in the result;
    `more` are fields of each partition in it.
    """

    def items(request: Any) -> list[Item]:
        return [
            (
                {field: getattr(topic, source) for field, source in copied.items()},
                (
                    results,
                    [
                        ({result_index: getattr(one, index) if index else one, **more}, None)
                        for one in getattr(topic, partitions)
                    ],
                ),
            )
            for topic in getattr(request, topics) or ()
        ]

    return items


def _deleted_topics(request: Any) -> list[Item]:
    named: list[Item] = [({"name": name}, None) for name in request.topic_names]
    return named + [({"name": topic.name, "topic_id": topic.topic_id}, None) for topic in request.topics]


def _scram_users(request: Any) -> list[Item]:
    users = dict.fromkeys(one.name for one in [*request.deletions, *request.upsertions])
    return [({"user": user}, None) for user in users]


def _described_users(request: Any) -> list[Item]:
    """One result for each user, without its name, as in Kafka. For all users Kafka does not answer at all."""
    return [({"user": ""}, None) for _ in request.users or ()]


def _directories(request: Any) -> list[Item]:
    """Of AlterReplicaLogDirs: a topic for each directory that has it."""
    return [
        (
            {"topic_name": topic.name},
            ("partitions", [({"partition_index": index}, None) for index in topic.partitions]),
        )
        for directory in request.dirs
        for topic in directory.topics
    ]


def _markers(request: Any) -> list[Item]:
    of_marker = _partitions("topics", "partition_indexes", "", copied={"name": "name"})
    return [
        ({"producer_id": marker.producer_id}, ("topics", of_marker(marker))) for marker in request.markers
    ]


_SHARE_STATES = (
    "results",
    _partitions(
        "topics", "partitions", "partition", copied={"topic_id": "topic_id"}, result_index="partition"
    ),
)

_RESULTS: Mapping[int, tuple[str, Items]] = {
    0: (
        "responses",
        _partitions(
            "topic_data",
            "partition_data",
            "index",
            copied={"name": "name", "topic_id": "topic_id"},
            results="partition_responses",
            result_index="index",
            more={"base_offset": -1},
        ),
    ),
    8: (
        "topics",
        _partitions(
            "topics", "partitions", "partition_index", copied={"name": "name", "topic_id": "topic_id"}
        ),
    ),
    19: ("topics", _of("topics", "name")),
    20: ("responses", _deleted_topics),
    24: (
        "results_by_topic_v3_and_below",
        _partitions(
            "v3_and_below_topics", "partitions", "", copied={"name": "name"}, results="results_by_partition"
        ),
    ),
    27: ("markers", _markers),
    28: ("topics", _partitions("topics", "partitions", "partition_index", copied={"name": "name"})),
    30: ("results", _of("creations")),
    31: ("filter_results", _of("filters")),
    33: ("responses", _of("resources", "resource_type", "resource_name")),
    34: ("results", _directories),
    37: ("results", _of("topics", "name")),
    43: (
        "replica_election_results",
        _partitions(
            "topic_partitions",
            "partitions",
            "",
            copied={"topic": "topic"},
            results="partition_result",
            result_index="partition_id",
        ),
    ),
    44: ("responses", _of("resources", "resource_type", "resource_name")),
    45: (
        "responses",
        _partitions("topics", "partitions", "partition_index", copied={"name": "name"}),
    ),
    46: ("topics", _partitions("topics", "partition_indexes", "", copied={"name": "name"})),
    49: ("entries", _of("entries", "entity")),
    50: ("results", _described_users),
    51: ("results", _scram_users),
    **dict.fromkeys(range(83, 88), _SHARE_STATES),
}
"""By API key: the list of results in the response, and the beginnings of its items. The responses to other
requests have one error."""

_FIELDS: Mapping[int, Callable[[int], Mapping[str, Any]]] = {
    11: lambda version: {"protocol_name": "" if version < FIRST_VERSION_WITH_NULL_PROTOCOL else None},
    22: lambda version: {"producer_id": -1, "producer_epoch": -1},
    48: lambda version: {"entries": None},
}
"""By API key: the fields at the top of a refusal that are not as by default, in a version."""

_WITHOUT_MESSAGE = (0, 48, 50)
"""By API key: responses without a message for an error that has nothing but its code to tell."""
