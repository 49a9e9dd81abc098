"""What a request answers is what it would have answered had the client waited for the answer before it.

Every two requests are sent at once on one connection, with and without a long poll in front of them, to
Apache Kafka and to Odradek. Another Odradek gets the same requests one by one, each after the response to the
request before it. All three give the same responses. Two kinds are left out, because their response itself
does not wait: changes by Kafka's controller, and the markers that end a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import (
    CLOSED,
    NO_ANSWER,
    SECONDS,
    UNORDERED,
    Pair,
    Pauses,
    Side,
    sorted_lists,
)
from compat_tests.differential.pairs import odradek, pair_of
from compat_tests.differential.pipelines import LONG_MS, Request, World, fetch_of, label, produced, requests
from compat_tests.differential.test_transactions import wait_for_coordinators
from compat_tests.differential.topics import NOW_MS, metadata_of
from odradek.wire.messages import api_keys
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.tiers import NIGHTLY

STEP = 1 if NIGHTLY else 8
"""Of all pairs every so many are tried; other ones behind a long poll."""
POLL_MS = 5

FETCH, WRITE_TXN_MARKERS = 1, 27

STEADY = {
    **SETTINGS,
    "group.consumer.max.session.timeout.ms": str(LONG_MS),
    "group.consumer.session.timeout.ms": str(LONG_MS),
}
"""No member expires meanwhile."""

OWN = {
    "topic_id": "of a topic that the two requests made",
    "member_id": "made up by the coordinator",
    "leader": "made up by the coordinator",
    "producer_id": "given out by the broker",
    "producer_epoch": "a producer begins anew until its transaction before has ended",
    "transaction_start_time_ms": "the broker's clock",
    "last_timestamp": "the broker's clock, of a marker",
    "log_dir": "each broker's own",
    "total_bytes": "of each broker's disk",
    "usable_bytes": "of each broker's disk",
    "cluster_id": "each broker's own",
    "controller_id": "any",
    "error_message": "the wording is ours",
    "token_id": "made up",
}
"""Fields whose values are each broker's own: whether there is one is compared."""

LISTS = {
    **UNORDERED,
    "DescribeProducers": {"active_producers": "last_sequence"},
    "ListGroups": {"groups": "group_id"},
    "ListOffsets": {"topics": "name"},
    "ListTransactions": {"transaction_states": "transactional_id"},
}

BY_CONTROLLER = {19, 20, 33, 37, 44}
"""What Kafka's controller changes. Its broker learns of it a little later than the client, so what the next
request sees of it is not the same each time."""
ENDS_TRANSACTION = {22, 26}
"""The markers in the partitions, which are not waited for: by Odradek as little as by Kafka."""
SEES_MARKERS = {0, 1, 2, 21, 22, 23, 24, 25, 26, 28, 35, 61, 65, 66}

VERSIONS = {24: 3}
"""Above that brokers ask, in another form."""

ONLY_ERROR = {18: "which versions are served is compared in test_frames"}


class Three(Pair):
    """Kafka, Odradek, and an Odradek that is asked one after the other."""

    def __init__(self, pair: Pair, patient: Side) -> None:
        super().__init__(pair.kafka, pair.odradek, pair.served)
        self.patient = patient

    @property
    def sides(self) -> tuple[Side, ...]:  # type: ignore[override]
        return self.kafka, self.odradek, self.patient


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    """Brokers of their own: all three have been asked the same since they were started."""
    with pair_of(reference.CURRENT, STEADY) as pair, odradek(STEADY) as patient:
        three = Three(pair, patient)
        wait_for_coordinators(three)
        yield three


def plain(side: Side, request: Request, version: int, answer: Any) -> Any:
    if answer in (CLOSED, NO_ANSWER) or answer is None:
        return answer
    api = type(answer).__name__.removesuffix("Response")
    told = sorted_lists(masked(side.plain(answer, version)), LISTS.get(api, {}))
    return {"error_code": told["error_code"]} if request.api_key in ONLY_ERROR else told


def masked(value: Any) -> Any:
    if isinstance(value, list):
        return [masked(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _masked_field(name, one) for name, one in value.items()}


def _masked_field(name: str, value: Any) -> Any:
    if name in OWN and value not in (None, "", -1, "0" * 32):
        return f"<{OWN[name]}>"
    if name == "timestamp" and value > NOW_MS + LONG_MS // 2:
        return "<the broker's clock, of a marker>"
    return masked(value)


def show(three: Three, world: World, *pipeline: Request) -> None:
    """Sends the requests to all three, and compares each answer."""
    world.number += 1
    for request in pipeline:
        for prepare in request.prepare:
            for side in three.sides:
                prepare(side, world)
    if any(request.prepare for request in pipeline):
        world.ends = _common_ends(three, world)  # the producer's last transaction may have been ended
    versions = [VERSIONS.get(one.api_key, three.served[one.api_key][-1]) for one in pipeline]
    told = []
    for side in three.sides:
        messages = [
            (one.message(side, world), version, one.is_answered)
            for one, version in zip(pipeline, versions, strict=True)
        ]
        groups = [[one] for one in messages] if side is three.patient else [messages]
        answers = [answer for group in groups for answer in side.pipeline(group)]
        told.append(
            [
                plain(side, one, version, answer)
                for one, version, answer in zip(pipeline, versions, answers, strict=True)
            ]
        )
    theirs, ours, one_by_one = told
    for place, request in enumerate(pipeline):
        before = {one.api_key for one in pipeline[:place]}
        what = " > ".join(label(one) for one in pipeline[: place + 1])
        if before & ENDS_TRANSACTION and request.api_key in SEES_MARKERS:
            continue
        if WRITE_TXN_MARKERS in before and request.api_key == FETCH:
            continue  # the records have the time of the broker's clock
        three.compare(f"{what} (one by one)", one_by_one[place], ours[place])
        if not before & BY_CONTROLLER:
            three.compare(what, theirs[place], ours[place])
    settle(three, world, {one.api_key for one in pipeline})


def settle(three: Three, world: World, api_keys: set[int]) -> None:
    """Waits for what is done behind an answer, and looks at where the logs have come to."""
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    if api_keys & ENDS_TRANSACTION:
        for side in three.sides:
            while not _is_over(side, world):
                assert time.monotonic() < deadline, side.name
                pause()
    if api_keys & BY_CONTROLLER:
        while _known(three.kafka, world) != _known(three.odradek, world):
            assert time.monotonic() < deadline, world.plain
            pause()
        world.partitions = len(three.odradek.ask(metadata_of(world.plain), 9).topics[0].partitions)
    world.ends = _common_ends(three, world)


def _is_over(side: Side, world: World) -> bool:
    (told,) = side.ask(DescribeTransactionsRequest(transactional_ids=[world.producer]), 0).transaction_states
    return told.transaction_state in ("", "Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


def _known(side: Side, world: World) -> Any:
    """What a broker knows of the topics that the requests change."""
    topics = side.ask(metadata_of(world.plain, world.fresh), 9).topics
    setting = next(one for one in requests([32]) if one.api_key == 32).message(side, world)
    (told,) = side.ask(setting, 4).results
    known = {topic.name: (topic.error_code, len(topic.partitions)) for topic in topics}
    return known, [one.value for one in told.configs]


def _common_ends(three: Three, world: World) -> dict[str, int]:
    ends = [_ends(side, world) for side in three.sides]
    assert ends[0] == ends[1] == ends[2], world.number
    return ends[0]


def _ends(side: Side, world: World) -> dict[str, int]:
    latest = next(one for one in requests([2]) if one.name == "latest")
    # Over the same connection: Produce with acks=0 has no other end that one could wait for.
    topics = side.ask(latest.message(side, world), 5, "pipeline").topics
    return {topic.name: topic.partitions[0].offset for topic in topics}


ALL = requests(api_keys())
POLL = Request("in front", 1, fetch_of("quiet", wait_ms=POLL_MS))


@pytest.mark.parametrize("first", ALL, ids=label)
def test_a_request_sees_what_those_before_it_on_its_connection_did(three: Three, first: Request) -> None:
    served = set(three.served)
    if first.api_key not in served:
        pytest.skip("not served")
    world = World(three)
    for side in three.sides:
        produced(side, world)
    settle(three, world, set())
    for number, second in enumerate(requests(served), ALL.index(first)):
        if number % STEP == 0:
            show(three, world, first, second)
        if (number + STEP // 2) % STEP == 0:
            show(three, world, POLL, first, second)
