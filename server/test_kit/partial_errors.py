"""An error for a part of a request: the rest is served as if the part had not been asked for.

A request that only reads is served, and its response says the error in place of what was read. Of a request
that has an effect the part is taken out before the handler sees it, and the error is put into the response of
the others, in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import HeldBack, Waiting
from odradek.server.test_kit.named import Named, Place, named_in, ordered_as, put_error, without
from odradek.wire.messages import api_name

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.server.test_kit.interposing import Proceed
    from odradek.wire.errors import ErrorCode

READS = frozenset(
    {
        *("Fetch", "ListOffsets", "Metadata", "OffsetFetch", "FindCoordinator", "ApiVersions"),
        *("DescribeGroups", "ListGroups", "OffsetForLeaderEpoch", "DescribeAcls", "DescribeConfigs"),
        *("DescribeLogDirs", "DescribeDelegationToken", "ListPartitionReassignments", "DescribeClientQuotas"),
        *("DescribeUserScramCredentials", "DescribeQuorum", "DescribeCluster", "DescribeProducers"),
        *("DescribeTransactions", "ListTransactions", "ConsumerGroupDescribe", "GetTelemetrySubscriptions"),
        *("ListConfigResources", "DescribeTopicPartitions", "ShareGroupDescribe", "ReadShareGroupState"),
        *("ReadShareGroupStateSummary", "StreamsGroupDescribe", "DescribeShareGroupOffsets"),
    }
)
"""Requests without an effect."""


def refuse(
    api: AnyApi,
    request: Any,
    context: RequestContext,
    place: Place,
    matched: Sequence[Named],
    code: ErrorCode,
    proceed: Proceed,
) -> Any:
    """`response | Waiting | None`: with the error for what was matched, or for all of the request."""
    version = context.api_version
    if not place.lists or (not place.kinds and api.refusal.has_place_for_code(api.response, version)):
        return api.refuse(request, version, code)

    def say(response: Any, values: Iterable[Mapping[str, Any]]) -> Any:
        for one in values:
            put_error(response, place, one, code, version)
        return response

    parts = _distinct(one.up_to(place.kinds) for one in matched)
    wanted = [one.values for one in parts if one.values.keys() & place.kinds]
    if api_name(api.request.api_key) in READS:
        if hasattr(request, "max_wait_ms"):
            request.max_wait_ms = 0  # the error is there at once
        return changed(
            proceed(request, context),
            lambda response: say(response, wanted or [one.values for one in named_in(response)]),
        )
    every = _distinct(one.up_to(place.kinds) for one in named_in(request))
    order = [one.values for one in every]

    def with_refusals(response: Any) -> Any:
        say(response, wanted)
        ordered_as(response, place, order)
        return response

    # An epoch of a session counts its requests: the handler has to see each.
    if len(parts) == len(every) and not hasattr(request, "share_session_epoch"):
        return with_refusals(api.response())
    return changed(proceed(without(request, parts), context), with_refusals)


def changed(response: Any, change: Callable[[Any], Any]) -> Any:
    """The response, or one that comes later, after a change. None stays None."""
    if isinstance(response, Waiting):
        held = HeldBack(response.cancel)
        response.on_complete(lambda found: held.complete(None if found is None else change(found)))
        return held
    return None if response is None else change(response)


def _distinct(parts: Iterable[Named]) -> list[Named]:
    """Each path once."""
    return list({one.path: one for one in parts}.values())
