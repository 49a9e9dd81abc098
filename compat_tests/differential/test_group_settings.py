"""Settings that groups have of their own, and ListConfigResources: Kafka 4.3 and we, asked the same.

What settings of share groups do is in `test_share_groups.py`.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
from typing import Any

import pytest

from compat_tests.differential.harness import Pair
from compat_tests.differential.test_settings import complete, incremental, is_older, partly, whole
from compat_tests.differential.topics import new_topic
from odradek.config.changes import APPEND, DELETE, SET
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OF_GROUP = 8
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _only_newer(pair: Pair) -> None:
    if is_older(pair):
        pytest.skip("groups have settings since Kafka 4.0")


def new_group() -> str:
    return f"settings-of/{next(_numbers)}"


def compare_settings(pair: Pair, group: str, own: dict[str, str], note: str) -> None:
    """Asks both until the group's own settings are `own`, and compares all that they tell."""
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)

    def settled(answer: Any) -> bool:
        configs = answer.results[0].configs
        return {one.name: one.value for one in configs if one.config_source == OF_GROUP} == own

    answers = pair.ask(lambda _: request, 4, f"{note}, afterwards", settle=settled)
    assert all(map(settled, answers)), (note, own)


def test_groups_are_described_alike(pair: Pair) -> None:
    for name, keys in (("nobody", None), ("nobody", []), ("nobody", [SESSION, "no.such"]), ("", None)):
        resource = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=keys)
        for version in pair.versions(DescribeConfigsRequest):
            for synonyms in (False, True):
                request = DescribeConfigsRequest(
                    resources=[resource], include_synonyms=synonyms, include_documentation=version >= 3
                )
                pair.ask(lambda _: request, version, f"{name!r} {keys}")


def test_settings_of_a_group_change_alike(pair: Pair) -> None:
    steps: list[tuple[str, list[tuple[str, int, str | None]], dict[str, str]]] = [
        ("set", [(SESSION, SET, "50000")], {SESSION: "50000"}),
        ("set with blanks", [(HEARTBEAT, SET, " 6000 ")], {SESSION: "50000", HEARTBEAT: "6000"}),
        ("delete", [(SESSION, DELETE, None), ("no.such", DELETE, None)], {HEARTBEAT: "6000"}),
        (
            "of streams",
            [(HEARTBEAT, DELETE, "7"), ("streams.num.standby.replicas", SET, "2")],
            {"streams.num.standby.replicas": "2"},
        ),
        ("nothing", [], {"streams.num.standby.replicas": "2"}),
    ]
    for version in pair.versions(IncrementalAlterConfigsRequest):
        group, before = new_group(), dict[str, str]()
        for note, operations, after in steps:
            for dry in (True, False):
                request = incremental(partly(GROUP, group, *operations), dry=dry)
                pair.ask(lambda _: request, version, f"{note}, validate only {dry}")
                compare_settings(pair, group, before if dry else after, note)
            before = after
        pair.ask(lambda _: complete(whole(GROUP, group, (SESSION, "60000"))), 2, "as a whole")
        compare_settings(pair, group, {SESSION: "60000"}, "as a whole")
        pair.ask(lambda _: complete(whole(GROUP, group)), 2, "none left")
        compare_settings(pair, group, {}, "none left")


@pytest.mark.parametrize(
    "operations",
    [
        [(SESSION, SET, "44999")],
        [(SESSION, SET, "60001")],
        [(SESSION, SET, "soon")],
        [(SESSION, SET, "0")],
        [(SESSION, SET, None)],
        [(SESSION, APPEND, "1")],
        [(SESSION, SET, "50000"), (SESSION, SET, "50000")],
        [(HEARTBEAT, SET, "4999")],
        [(HEARTBEAT, SET, "15001")],
        [("consumer.assignment.interval.ms", SET, "-1")],
        [("consumer.assignment.interval.ms", SET, "15001")],
        [("consumer.assignor.offload.enable", SET, "perhaps")],
        [("streams.session.timeout.ms", SET, "44999")],
        [("streams.heartbeat.interval.ms", SET, "15001")],
        [("streams.assignment.interval.ms", SET, "15001")],
        [("streams.num.standby.replicas", SET, "3")],
        [("streams.num.standby.replicas", SET, "-1")],
        [("streams.initial.rebalance.delay.ms", SET, "-1")],
        [("streams.num.warmup.replicas", SET, "21")],
        [("streams.task.offset.interval.ms", SET, "14999")],
        [("streams.acceptable.recovery.lag", SET, "-1")],
        [("streams.assignor.name", SET, "x")],
        [("share.session.timeout.ms", SET, "1")],
        [("share.isolation.level", SET, "dirty")],
        [("share.auto.offset.reset", SET, "never")],
        [("retention.ms", SET, "1")],
        [(SESSION, SET, "50000"), ("no.such", SET, "1")],
    ],
)
def test_what_a_group_cannot_have_is_refused_alike(
    pair: Pair, operations: list[tuple[str, int, str | None]]
) -> None:
    group = new_group()
    for dry in (True, False):
        request = incremental(partly(GROUP, group, *operations), dry=dry)
        pair.ask(lambda _: request, 1, f"{operations}, validate only {dry}")
    compare_settings(pair, group, {}, str(operations))


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("streams.assignor.name", "x", "streams.assignor.name 'x' is not a registered task assignor."),
        (SESSION, "44999", "must be in the range 45000 to 60000"),
        (HEARTBEAT, "15001", "must be in the range 5000 to 15000"),
        ("consumer.assignment.interval.ms", "15001", "must be in the range 0 to 15000"),
        ("streams.num.standby.replicas", "3", "must be less than or equal to 2"),
        ("streams.num.warmup.replicas", "21", "must be less than or equal to 20"),
        ("streams.task.offset.interval.ms", "14999", "must be greater than or equal to 15000"),
        ("share.session.timeout.ms", "1", "must be in the range 45000 to 60000"),
    ],
)
def test_what_a_value_has_to_be_is_told_in_the_same_words(
    pair: Pair, name: str, value: str, part: str
) -> None:
    """The tool shows the sentence, which names the bounds, or the assignors that there are."""
    request = incremental(partly(GROUP, new_group(), (name, SET, value)))
    kafka, odradek = (one.responses[0].error_message for one in pair.ask(lambda _: request, 1))
    assert kafka == odradek
    assert part in odradek


def test_there_are_no_settings_for_all_groups_in_both(pair: Pair) -> None:
    for operations in ([(SESSION, SET, "50000")], [(SESSION, DELETE, None)], []):
        pair.ask(lambda _: incremental(partly(GROUP, "", *operations)), 1, str(operations))
    for settings in ([(SESSION, "50000")], []):
        pair.ask(lambda _: complete(whole(GROUP, "", *settings)), 2, str(settings))


def test_resources_with_settings_are_listed_alike(pair: Pair) -> None:
    group, topic = new_group(), new_topic(pair, "listed")
    pair.ask(lambda _: incremental(partly(GROUP, group, (SESSION, SET, "50000"))), 1, "change")

    def listed(answer: Any) -> bool:
        return answer.error_code != 0 or any(one.resource_name == group for one in answer.config_resources)

    for types in (
        [GROUP],
        [BROKER, LOGGER],
        [LOGGER],
        [CLIENT_METRICS],
        [GROUP, BROKER, GROUP],
        [0],
        [BROKER, 99],
    ):
        pair.ask(
            lambda _: ListConfigResourcesRequest(resource_types=types),
            1,
            str(types),
            settle=listed if GROUP in types else None,
        )
    pair.ask(lambda _: ListConfigResourcesRequest(), 0)
    for types in ([], [TOPIC]):
        for side in pair.sides:
            answer = side.ask(ListConfigResourcesRequest(resource_types=types), 1)
            found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
            assert (TOPIC, topic) in found, (side.name, types)
            assert ((GROUP, group) in found) is (types == []), (side.name, types)
    pair.ask(lambda _: complete(whole(GROUP, group)), 2, "none left")
    pair.ask(
        lambda _: ListConfigResourcesRequest(resource_types=[GROUP]),
        1,
        "none left",
        settle=lambda answer: not listed(answer),
    )
