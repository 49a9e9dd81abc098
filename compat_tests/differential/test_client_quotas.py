"""Quotas of users, clients and addresses: what is refused, kept and found, and what it does, beside Kafka."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.differential.harness import CLIENT_ID, Pair, Side
from odradek.wire.messages import alter_client_quotas as quotas
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.wire.schema import Message

USER, CLIENT, IP = ("user", "alice"), ("client-id", "c"), ("ip", "127.0.0.1")
PRODUCED, CONNECTED = "producer_byte_rate", "connection_creation_rate"
Entity = list[tuple[str, str | None]]


def quota_entry(entity: Entity, *ops: tuple[str, float | None]) -> quotas.EntryData:
    """A value of None removes the quota."""
    return quotas.EntryData(
        entity=[quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def zero(entity: Entity, key: str) -> quotas.EntryData:
    ops = [quotas.OpData(key=key, value=0.0, remove=False)]
    return quotas.EntryData(entity=quota_entry(entity).entity, ops=ops)


def alter_quotas(*entries: quotas.EntryData, dry: bool = False) -> quotas.AlterClientQuotasRequest:
    return quotas.AlterClientQuotasRequest(entries=list(entries), validate_only=dry)


def test_quotas_that_nobody_may_have_are_refused_alike(pair: Pair) -> None:
    cases: dict[str, list[quotas.EntryData]] = {
        "no entity": [quota_entry([], (PRODUCED, 1.0))],
        "an unknown type": [quota_entry([("group", "g")], (PRODUCED, 1.0))],
        "no type": [quota_entry([("", "x")], (PRODUCED, 1.0))],
        "no name": [quota_entry([("user", "")], (PRODUCED, 1.0))],
        "an address and a user": [quota_entry([USER, IP], (PRODUCED, 1.0))],
        "an address and a client": [quota_entry([IP, CLIENT], (CONNECTED, 1.0))],
        "an unknown quota": [quota_entry([USER], ("speed", 1.0))],
        "an address's quota of a user": [quota_entry([USER], (CONNECTED, 1.0))],
        "a user's quota of an address": [quota_entry([IP], (PRODUCED, 1.0))],
        "negative": [quota_entry([CLIENT], (PRODUCED, -1.0))],
        "zero": [zero([CLIENT], PRODUCED)],
        "zero of a fraction": [zero([USER, CLIENT], "request_percentage")],
        "a fraction": [quota_entry([USER], (PRODUCED, 1.5))],
        "too large": [quota_entry([USER], (PRODUCED, 1e19))],
        "infinite": [quota_entry([USER], (PRODUCED, math.inf))],
        "infinite below zero": [quota_entry([USER], (PRODUCED, -math.inf))],
        "no number": [quota_entry([USER], (PRODUCED, math.nan))],
        "no number of a share": [quota_entry([USER, CLIENT], ("request_percentage", math.nan))],
        "no number for an address": [quota_entry([IP], (CONNECTED, math.nan))],
        "a number and none": [quota_entry([USER], (PRODUCED, None), ("consumer_byte_rate", math.nan))],
        "too large for an address": [quota_entry([IP], (CONNECTED, 3e9))],
        "a fraction for an address": [quota_entry([("ip", None)], (CONNECTED, 1.5))],
        "twice a quota": [quota_entry([USER], (PRODUCED, None), (PRODUCED, 2.0))],
        "twice a quota, and the user": [
            quota_entry([USER], (PRODUCED, None), (PRODUCED, None)),
            quota_entry([USER], (PRODUCED, None)),
        ],
        "twice a user": [quota_entry([USER], (PRODUCED, None)), quota_entry([USER], (PRODUCED, None))],
        "the same in another order": [quota_entry([USER, CLIENT]), quota_entry([CLIENT, USER])],
        "sound and not": [
            quota_entry([USER], (PRODUCED, None)),
            quota_entry([CLIENT], (PRODUCED, 0.5)),
        ],
        "first removed, then wrong": [quota_entry([USER], (PRODUCED, None), ("consumer_byte_rate", -1.0))],
    }
    for version in pair.versions(quotas.AlterClientQuotasRequest):
        for note, entries in cases.items():
            for dry in (False, True):
                request = alter_quotas(*entries, dry=dry)
                pair.ask(lambda _: request, version, f"{note}, dry {dry}")


def test_what_is_not_there_is_removed_alike(pair: Pair) -> None:
    cases: dict[str, list[quotas.EntryData]] = {
        "of a user": [quota_entry([USER], (PRODUCED, None))],
        "of the default user": [quota_entry([("user", None)], ("request_percentage", None))],
        "of a client of a user": [quota_entry([USER, CLIENT], (PRODUCED, None))],
        "of an address": [quota_entry([IP], (CONNECTED, None))],
        "of the default address": [quota_entry([("ip", None)], (CONNECTED, None))],
        "an unknown quota": [quota_entry([USER], ("speed", None))],
        "one type twice": [quota_entry([USER, ("user", "bob")], (PRODUCED, None))],
        "nothing of a user": [quota_entry([USER])],
        "of many": [quota_entry([USER], (PRODUCED, None)), quota_entry([CLIENT], (PRODUCED, None))],
        "nothing": [],
    }
    for version in pair.versions(quotas.AlterClientQuotasRequest):
        for note, entries in cases.items():
            request = alter_quotas(*entries)
            pair.ask(lambda _: request, version, note)


def test_quotas_are_described_alike(pair: Pair) -> None:
    exact, default, any_ = 0, 1, 2
    cases: list[list[tuple[str, int, str | None]]] = [
        [],
        [("user", exact, "alice")],
        [("user", exact, None)],
        [("user", default, None)],
        [("user", default, "alice")],
        [("client-id", any_, None)],
        [("client-id", any_, "c")],
        [("user", 3, None)],
        [("user", -1, "alice")],
        [("", exact, "alice")],
        [("group", exact, "g")],
        [("group", 9, None)],
        [("group", exact, "g"), ("group", exact, "g")],
        [("user", exact, "alice"), ("user", any_, None)],
        [("user", exact, "alice"), ("client-id", default, None)],
        [("user", exact, "alice"), ("ip", any_, None)],
        [("ip", exact, "127.0.0.1"), ("client-id", any_, None)],
        [("ip", exact, "127.0.0.1")],
    ]
    for version in pair.versions(DescribeClientQuotasRequest):
        for asked in cases:
            components = [
                ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in asked
            ]
            for strict in (False, True):
                request = DescribeClientQuotasRequest(components=components, strict=strict)
                pair.ask(lambda _: request, version, f"{asked}, strict {strict}")


# What is kept

KEPT: list[tuple[Entity, dict[str, float]]] = [
    ([USER], {PRODUCED: 1_000_000.0, "consumer_byte_rate": 2_000_000.0}),
    ([USER, CLIENT], {PRODUCED: 3_000_000.0}),
    ([USER, ("client-id", None)], {"request_percentage": 0.5}),
    ([("user", None)], {"request_percentage": 1e9}),
    ([("user", None), ("client-id", None)], {"controller_mutation_rate": 1000.5}),
    ([("user", None), CLIENT], {"controller_mutation_rate": 1e-9}),
    ([("user", "a name, with=all/of it * \u00e4")], {PRODUCED: float(2**62)}),
    ([CLIENT], {PRODUCED: 5_000_000.0}),
    ([("client-id", None)], {"consumer_byte_rate": 6_000_000.0}),
    ([("ip", "10.1.2.3")], {CONNECTED: 7.0}),
    ([("ip", "::1")], {CONNECTED: float(2**31 - 1)}),
]


EVERYTHING = DescribeClientQuotasRequest(components=[], strict=False)


@pytest.fixture
def kept(pair: Pair) -> Iterator[Pair]:
    """Quotas on both sides, until the end of the test."""
    versions = pair.versions(quotas.AlterClientQuotasRequest)
    if not versions:
        pytest.skip("all versions are compared with the current release")
    setting = alter_quotas(*(quota_entry(entity, *values.items()) for entity, values in KEPT))
    pair.ask(lambda _: setting, versions[-1], "set")
    wait_until_alike(pair, "set", count=len(KEPT))
    yield pair
    removals = (quota_entry(entity, *dict.fromkeys(values).items()) for entity, values in KEPT)
    removing = alter_quotas(*removals)
    pair.ask(lambda _: removing, versions[-1], "removed")
    wait_until_alike(pair, "removed", count=0)


def found(side: Side) -> dict[object, object]:
    answer = side.ask(EVERYTHING, 1)
    return {
        frozenset((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries
    }


def wait_until_alike(pair: Pair, note: str, count: int | None = None) -> None:
    """A broker of Kafka knows of a quota a moment after its controller has set it."""
    wait_until(lambda: found(pair.kafka) == found(pair.odradek), f"both have the same quotas, {note}")
    assert count is None or len(found(pair.odradek)) == count


def test_quotas_that_are_kept_are_found_alike(kept: Pair) -> None:
    exact, default, any_ = 0, 1, 2
    cases: list[list[tuple[str, int, str | None]]] = [
        [],
        [("user", exact, "alice")],
        [("user", exact, "bob")],
        [("user", default, None)],
        [("user", any_, None)],
        [("client-id", exact, "c")],
        [("client-id", default, None)],
        [("client-id", any_, None)],
        [("user", exact, "alice"), ("client-id", exact, "c")],
        [("user", exact, "alice"), ("client-id", default, None)],
        [("user", any_, None), ("client-id", any_, None)],
        [("user", default, None), ("client-id", any_, None)],
        [("ip", any_, None)],
        [("ip", exact, "::1")],
        [("ip", exact, "10.1.2.4")],
        [("ip", default, None)],
    ]
    for version in kept.versions(DescribeClientQuotasRequest):
        for asked in cases:
            components = [
                ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in asked
            ]
            for strict in (False, True):
                request = DescribeClientQuotasRequest(components=components, strict=strict)
                kept.ask(lambda _: request, version, f"{asked}, strict {strict}")


def test_quotas_that_are_kept_are_changed_alike(kept: Pair) -> None:
    cases: dict[str, list[quotas.EntryData]] = {
        "another value": [quota_entry([USER], (PRODUCED, 10.0))],
        "the same value": [quota_entry([USER], (PRODUCED, 10.0))],
        "one goes, one comes": [quota_entry([USER], (PRODUCED, None), ("request_percentage", 3.5))],
        "one of two is refused": [quota_entry([USER], (PRODUCED, 5.0), ("consumer_byte_rate", 0.5))],
        "one entity of two is refused": [
            quota_entry([CLIENT], (PRODUCED, 11.0)),
            quota_entry([USER], (PRODUCED, 0.5)),
        ],
        "an entity twice": [
            quota_entry([CLIENT], (PRODUCED, 12.0)),
            quota_entry([CLIENT], (PRODUCED, 13.0)),
        ],
        "a quota twice": [quota_entry([CLIENT], (PRODUCED, 14.0), (PRODUCED, 15.0))],
        "all back": [quota_entry(entity, *values.items()) for entity, values in KEPT],
        "and what came": [quota_entry([USER], ("request_percentage", None))],
    }
    for version in kept.versions(quotas.AlterClientQuotasRequest):
        for note, entries in cases.items():
            for dry in (True, False):
                request = alter_quotas(*entries, dry=dry)
                kept.ask(lambda _: request, version, f"{note}, dry {dry}")
                wait_until_alike(kept, f"{note}, dry {dry}")


def test_a_host_without_an_address_has_no_quota_on_either_side(pair: Pair) -> None:
    for version in pair.versions(quotas.AlterClientQuotasRequest):
        request = alter_quotas(quota_entry([("ip", "no-such-host.invalid")], (CONNECTED, 1.0)))
        pair.ask(lambda _: request, version, "no such host")


# What it does


MUTATED = "controller_mutation_rate"
STRICT_SINCE = {CreateTopicsRequest: 6, DeleteTopicsRequest: 5, CreatePartitionsRequest: 3}


def alone(side: Side, request: Message, version: int) -> tuple[list[int], bool]:
    """Codes of the topics, and whether the client has to wait, on a connection of its own: a broker serves
    nobody on it until the client has waited."""
    answer = side.ask(request, version, "alone")
    side.hang_up("alone")
    results = next(
        getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name)
    )
    return [one.error_code for one in results], answer.throttle_time_ms > 0


def created(*names: str, count: int = 1, dry: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=dry)


def deleted(name: str, version: int) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)


def grown(name: str, count: int) -> CreatePartitionsRequest:
    growth = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[growth], timeout_ms=30_000, validate_only=False)


@pytest.fixture
def used_up(pair: Pair) -> Iterator[Pair]:
    """This client may make a partition in a second, and has made far more of them."""
    if not pair.versions(quotas.AlterClientQuotasRequest):
        pytest.skip("all versions are compared with the current release")
    entity: Entity = [("client-id", CLIENT_ID)]
    setting = alter_quotas(quota_entry(entity, (MUTATED, 1.0)))
    pair.ask(lambda _: setting, 1, "set")
    for side in pair.sides:
        # Kafka's controller knows of the quota a moment later, and the first topics may use up the burst.
        dry = created(f"burst-{side.name}", count=150, dry=True)
        wait_until(lambda: alone(side, dry, 7)[0] == [89], f"{side.name} refuses a topic")
    yield pair
    removing = alter_quotas(quota_entry(entity, (MUTATED, None)))
    pair.ask(lambda _: removing, 1, "removed")
    for side in pair.sides:
        dry = created(f"burst-{side.name}", dry=True)
        wait_until(lambda: alone(side, dry, 7)[0] == [0], f"{side.name} refuses no topic any more")


def test_partitions_beyond_the_rate_are_refused_by_the_versions_that_say_so(used_up: Pair) -> None:
    """Older ones are done, and the client waits. What is refused anyway does not count."""
    for version in used_up.versions(CreateTopicsRequest):
        name = f"beyond-{version}"
        for request in (created(name), created("no/name"), created(name, dry=True)):
            theirs, ours = (alone(side, request, version) for side in used_up.sides)
            assert ours == theirs, (version, request)
        is_strict = version >= STRICT_SINCE[CreateTopicsRequest]
        assert [alone(side, created(f"{name}-b"), version)[0] for side in used_up.sides] == (
            [[89], [89]] if is_strict else [[0], [0]]
        )
    for version in used_up.versions(CreatePartitionsRequest):
        for request in (grown("beyond-2", 2 + version), grown("nowhere", 3), grown("beyond-2", 1)):
            theirs, ours = (alone(side, request, version) for side in used_up.sides)
            assert ours == theirs, (version, request)
    for version in used_up.versions(DeleteTopicsRequest):
        for request in (deleted("beyond-2-b", version), deleted("nowhere", version)):
            theirs, ours = (alone(side, request, version) for side in used_up.sides)
            assert ours == theirs, (version, request)
