"""Client metrics (KIP-714): subscriptions, and what clients are answered who ask and push.

Kafka has no reporter here that takes metrics, so it does not advertise the two APIs of clients. It serves
them.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.test_settings import complete, incremental, partly, whole
from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.wire.compression import compress
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_configs import AlterConfigsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest
from odradek.wire.messages.push_telemetry import PushTelemetryRequest
from odradek.wire.schema import ZERO_UUID

CLIENT_METRICS = 16
SOON_MS, LATE_MS = "100", "3600000"
BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Of its own: what is advertised depends on subscriptions."""
    with pair_of(reference.CURRENT, {}) as pair:
        yield pair


@pytest.fixture(autouse=True)
def _no_subscription(pair: Pair) -> Iterator[None]:
    """None is left to the next test."""
    yield
    settings = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
    pair.ask(lambda _: incremental(partly(CLIENT_METRICS, "only", *settings)), 1, "the end")
    await_list(pair, [])


def alter(
    pair: Pair, name: str, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> None:
    """Asks both, in every version."""
    request = incremental(partly(CLIENT_METRICS, name, *operations), dry=validate_only)
    for version in pair.versions(IncrementalAlterConfigsRequest):
        pair.ask(lambda _: request, version, f"{name!r} {operations}")


def await_list(pair: Pair, names: list[str]) -> None:
    """Until both list these subscriptions, in every version that lists any."""
    for version in pair.versions(ListConfigResourcesRequest):
        request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS] if version else [])
        answers = pair.ask(
            lambda _: request,
            version,
            f"{names}",
            settle=lambda answer: sorted(one.resource_name for one in answer.config_resources) == names,
        )
        assert all(len(one.config_resources) == len(names) for one in answers)


def describe(pair: Pair, name: str, keys: list[str] | None = None) -> None:
    for version in pair.versions(DescribeConfigsRequest):
        for more in (False, True):
            resource = DescribeConfigsResource(
                resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=keys
            )
            request = DescribeConfigsRequest(
                resources=[resource], include_synonyms=more, include_documentation=more and version >= 3
            )
            pair.ask(lambda _: request, version, f"{name!r} {keys} {more}")


BAD_SETTINGS: list[tuple[str, int, str | None]] = [
    *(("interval.ms", SET, text) for text in ("99", "3600001", "x", "", " 1000 ", "1e3", "-1", None)),
    *(("metrics", SET, text) for text in ("*", "", "a,a", "*,a", " a , b ", "a,,b", ",", None)),
    ("nonsense", SET, "1"),
    ("nonsense", DELETE, None),
    ("metrics", DELETE, None),
    *((name, kind, "1") for name in ("metrics", "interval.ms") for kind in (APPEND, SUBTRACT)),
    *(
        ("match", SET, text)
        for text in (
            "client_id",
            "client_id=",
            "client_id=a=b",
            "client_id=a=",
            "=a",
            "other=1",
            "client_id=(",
            "",
            ",",
            "client_id=a,",
            "client_id=a,client_id=b",
            " client_id = a ",
            "client_source_port=9.*,client_software_name=apache-.*,client_source_address=.*",
            "client_software_version=1,client_instance_id=.*",
        )
    ),
]


def test_settings_of_subscriptions_are_taken_and_refused_alike(pair: Pair) -> None:
    for name in ("m", "", "a.b", "x" * 300, "bad name/"):
        alter(pair, name, ("interval.ms", SET, "60000"), validate_only=True)
    for operation in BAD_SETTINGS:
        alter(pair, "m", operation, validate_only=True)
    alter(pair, "m", ("metrics", SET, "a"), ("metrics", SET, "b"))
    for note, configs in {
        "all": {"interval.ms": "5000", "metrics": "a", "match": "client_id=a"},
        "bad": {"interval.ms": "5"},
        "none": {},
    }.items():
        for name in ("o", ""):
            request = complete(whole(CLIENT_METRICS, name, *configs.items()), dry=True)
            for version in pair.versions(AlterConfigsRequest):
                pair.ask(lambda _: request, version, f"{note} {name!r}")


def test_subscriptions_are_listed_and_described_alike(pair: Pair) -> None:
    await_list(pair, [])
    for name in ("nobody", ""):
        describe(pair, name)
    alter(pair, "one", ("metrics", SET, "org.a,org.b"), ("interval.ms", SET, " 60000 "))
    alter(pair, "two/2", ("match", SET, "client_id = a"))
    await_list(pair, ["one", "two/2"])
    for name in ("one", "two/2"):
        for keys in (None, [], ["match", "interval.ms", "nonsense"]):
            describe(pair, name, keys)
    alter(pair, "one", ("metrics", DELETE, None))
    alter(pair, "two/2", ("match", DELETE, None))
    await_list(pair, ["one"])
    describe(pair, "one")
    alter(pair, "one", ("interval.ms", DELETE, None))
    await_list(pair, [])


class Clients:
    """A client of each side."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._ids = dict.fromkeys(pair.sides, ZERO_UUID)
        self._subscriptions = dict.fromkeys(pair.sides, 0)

    def subscribe(self, note: str, *, id_: bytes | None = None, until: int | None = None) -> int:
        """The code of the answer; asks until it is `until`."""

        def see(side: Side, answer: Any) -> None:
            if answer.error_code == 0 and id_ is None:
                self._ids[side] = answer.client_instance_id
                self._subscriptions[side] = answer.subscription_id
            # The ids are each one's own.
            answer.client_instance_id = bytes(16) if answer.client_instance_id == ZERO_UUID else b"x" * 16
            answer.subscription_id = 1 if answer.subscription_id else 0

        theirs, _ = self._pair.ask(
            lambda side: GetTelemetrySubscriptionsRequest(client_instance_id=id_ or self._ids[side]),
            0,
            note,
            see=see,
            any_order=True,
            settle=None if until is None else lambda answer: answer.error_code == until,
        )
        return theirs.error_code  # type: ignore[no-any-return]

    def push(self, note: str, data: bytes = b"", *, until: ErrorCode | None = None, **fields: Any) -> str:
        """The name of the code. `until` as above; None: any but that it was too soon."""

        def request(side: Side) -> PushTelemetryRequest:
            return PushTelemetryRequest(
                **{
                    "client_instance_id": self._ids[side],
                    "subscription_id": self._subscriptions[side],
                    "terminating": False,
                    "compression_type": 0,
                    "metrics": data,
                    **fields,
                }
            )

        def settled(answer: Any) -> bool:
            if until is None:
                return bool(answer.error_code != ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return bool(answer.error_code == until)

        theirs, _ = self._pair.ask(request, 0, note, settle=settled)
        return ErrorCode(theirs.error_code).name


def subscription(pair: Pair, **configs: str) -> None:
    """Replaces the only one, until both have it."""
    texts = {name.replace("_", "."): text for name, text in configs.items()}
    request = complete(whole(CLIENT_METRICS, "only", *texts.items()))
    pair.ask(lambda _: request, 2, "subscription")
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="only", configuration_keys=None
    )
    question = DescribeConfigsRequest(resources=[resource])

    def settled(answer: Any) -> bool:
        return {one.name: one.value for one in answer.results[0].configs if one.config_source == 7} == texts

    assert all(map(settled, pair.ask(lambda _: question, 4, "subscription", settle=settled)))
    # Kafka tells it before those who answer clients have it.
    wanted = texts["metrics"].split(",")
    metrics = ["*"] if "*" in wanted else sorted(wanted)
    pair.ask(
        lambda _: GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID),
        0,
        "in effect",
        any_order=True,
        see=without_ids,
        settle=lambda answer: sorted(answer.requested_metrics) == metrics,
    )


def without_ids(side: Side, answer: Any) -> None:
    answer.client_instance_id, answer.subscription_id = bytes(16), 0


def test_clients_are_told_alike_what_is_wanted_and_how_often_they_may_ask(pair: Pair) -> None:
    subscription(pair, metrics="org.a,org.b", interval_ms=LATE_MS)
    clients = Clients(pair)
    assert clients.subscribe("first") == 0
    assert clients.subscribe("again") == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert clients.subscribe("a reserved id", id_=bytes(15) + b"\1") == 0
    assert clients.push("the first push") == "NONE"
    assert clients.push("too soon", until=ErrorCode.THROTTLING_QUOTA_EXCEEDED, compression_type=9)
    subscription(pair, metrics="*,org.b", interval_ms=SOON_MS)
    assert clients.subscribe("after a change", until=0) == 0


def test_a_client_that_connects_anew_begins_anew(pair: Pair) -> None:
    subscription(pair, metrics="org.a", interval_ms=LATE_MS)
    clients = Clients(pair)
    assert clients.subscribe("first") == 0
    assert clients.push("a push that ends it", terminating=True) == "NONE"
    assert clients.push("after it") == "INVALID_REQUEST"
    for side in pair.sides:
        side.hang_up()
    assert clients.subscribe("on another connection", until=0) == 0
    assert clients.push("a push") == "NONE"


def test_pushes_are_refused_alike_in_the_same_order(pair: Pair) -> None:
    subscription(pair, metrics="*", interval_ms=SOON_MS)
    clients = Clients(pair)
    for reserved in (ZERO_UUID, bytes(15) + b"\1"):
        assert clients.push("a reserved id", client_instance_id=reserved) == "INVALID_REQUEST"
    assert clients.push("an unknown id", client_instance_id=bytes(range(16)), subscription_id=0) == (
        "UNKNOWN_SUBSCRIPTION_ID"
    )
    assert clients.subscribe("first") == 0
    assert clients.push("no metrics") == "NONE"
    wrong: dict[str, Any] = {"subscription_id": 5, "compression_type": 9}
    large = bytes(BYTES_MAX + 1)
    assert clients.push("another subscription", large, **wrong) == "UNKNOWN_SUBSCRIPTION_ID"
    assert clients.subscribe("at once after that", until=0) == 0
    del wrong["subscription_id"]
    assert clients.push("an unknown codec", large, **wrong) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert clients.push("another one", compression_type=-1) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert clients.subscribe("at once after that, too", until=0) == 0
    assert clients.push("too large", large) == "TELEMETRY_TOO_LARGE"
    for codec in (1, 2, 3, 4):
        assert (
            clients.push("no such compressed data", b"nonsense", compression_type=codec) == "INVALID_RECORD"
        )
        assert clients.push("compressed nothing", compress(codec, b""), compression_type=codec) == "NONE"
        bomb = compress(codec, bytes(BYTES_MAX + 1))
        assert clients.push("a bomb", bomb, compression_type=codec) == "INVALID_RECORD"
    assert clients.push("the last one", terminating=True) == "NONE"
    assert clients.push("after it", terminating=True) == "INVALID_REQUEST"
    assert clients.push("which undoes the end", until=ErrorCode.INVALID_REQUEST) == "INVALID_REQUEST"
    assert clients.push("so that the next one is taken") == "NONE"
