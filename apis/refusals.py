"""Requests that are refused as a whole: the response that has one error code for everything that is named.

The places of the code follow from the declaration of the response: `error_code` and `error_message` at the
top, and the results of a response that names the items of its request. All other fields have their defaults,
but for those that the `Refusal` of the API has.

Source: `getErrorResponse` of the requests of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.apis.access import CODES
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.schema import Array, fields_of

if TYPE_CHECKING:
    from odradek.apis.access import Needs
    from odradek.apis.api import RequestContext
    from odradek.wire.schema import Message

Item = tuple[dict[str, Any], "tuple[str, Iterable[Item]] | None"]
"""The beginning of a result; and the list in it whose items have the code instead, if there is one."""
Items = Callable[[Any], Iterable[Item]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Refusal:
    """The form of a response that refuses all that a request names."""

    results: tuple[str, Items] | None = None
    """The list of results in the response, and the beginnings of its items for a request; None where the
    response has one error."""
    fields: Callable[[int], Mapping[str, Any]] | None = None
    """The fields at the top that are not as by default, in a version."""
    has_message: bool = True
    """Whether an error that has nothing but its code to tell comes with the message of the code."""

    def has_place_for_code(self, response: Any, version: int) -> bool:
        """Whether the code can be said: once for all, or in the results of what the request names."""
        return self.results is not None or any(
            field.name == "error_code" and field.exists_in(version) for field in fields_of(response)
        )

    def response(self, response: Callable[..., Any], request: Message, version: int, code: ErrorCode) -> Any:
        """The response to a request of this version that refuses everything that it names."""
        message = error_message(code) if self.has_message else None
        values = {"error_code": code, "partition_error_code": code, "error_message": message}

        def error_in(struct: Any) -> dict[str, Any]:
            return {
                field.name: values[field.name]
                for field in fields_of(struct)
                if field.name in values and field.exists_in(version)
            }

        fields = error_in(response)
        if self.fields is not None:
            fields |= self.fields(version)
        if self.results is not None:
            name, items = self.results
            fields[name] = _results(response, name, items(request), error_in)
        return response(**fields)


ONE_CODE = Refusal()
"""One error code and its message, at the top."""


def refusal_of_whole(needs: Needs, request: Any, context: RequestContext) -> ErrorCode | None:
    """The code for the whole request, by the first need for it that is refused."""
    for need in needs:
        if need.is_whole and need.names is not None:
            for name in need.names(request):
                if context.refuses(need.operation, need.resource_type, name):
                    return CODES[need.resource_type]
    return None


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


# Results that name the items of a request


def each_of(name: str, *copied: str) -> Items:
    """For each item of the request's list `name` a result that repeats some of its fields."""
    return lambda request: [
        ({field: getattr(item, field) for field in copied}, None) for item in getattr(request, name)
    ]


def each_partition(
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
