"""DescribeConfigs of every kind of resource, and every option of a broker with Kafka's own default."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential.harness import Pair
from compat_tests.differential.test_settings import is_older
from odradek.config.broker_config import TEST_API_LISTEN
from odradek.config.options import BROKER_OPTIONS, FROM_DEFAULT
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, UNKNOWN = 2, 4, 8, 16, 32, 77
NAMES = ("", "1", "7", "none-such", "a b")


def described(pair: Pair, kind: int, name: str) -> tuple[Any, Any]:
    """What each side tells of a resource, theirs first."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    theirs, ours = (side.ask(request, 4).results[0] for side in pair.sides)
    return theirs, ours


def shapes(kind: int, configs: list[Any]) -> list[list[Any]]:
    """All that is told; of loggers the root's, without its level: the others have other names."""
    return [
        [
            one.name,
            one.value,
            one.read_only,
            one.config_source,
            one.is_sensitive,
            one.config_type,
            one.synonyms,
        ]
        if kind != LOGGER
        else [one.name, one.read_only, one.config_source, one.is_sensitive, one.config_type, one.synonyms]
        for one in sorted(configs, key=lambda one: str(one.name))
        if kind != LOGGER or one.name == "root"
    ]


def test_resources_of_every_kind_are_described_or_refused_alike(pair: Pair) -> None:
    if is_older(pair):
        pytest.skip("Kafka 3.9 has other rules for names")
    for kind in (TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, UNKNOWN, 0):
        for name in NAMES:
            theirs, ours = described(pair, kind, name)
            pair.compare(f"type {kind} {name!r}", theirs.error_code, ours.error_code)
            if kind in (LOGGER, CLIENT_METRICS) and not theirs.error_code:
                told, wanted = shapes(kind, ours.configs), shapes(kind, theirs.configs)
                assert wanted
                pair.compare(f"type {kind} {name!r}", wanted, told)


def test_every_option_of_a_broker_is_kafkas_with_kafkas_default(pair: Pair) -> None:
    if is_older(pair):
        pytest.skip("the options are those of Kafka 4.3")

    def facts(configs: list[Any]) -> dict[str, Any]:
        return {
            one.name: (
                one.config_type,
                one.read_only,
                one.is_sensitive,
                [(other.name, other.value) for other in one.synonyms if other.source == FROM_DEFAULT]
                if one.name not in own
                else None,
            )
            for one in configs
        }

    own = {name for name, option in BROKER_OPTIONS.items() if option.has_own_default}
    theirs, ours = (facts(side.configs) for side in described(pair, BROKER, "1"))
    assert len(theirs) > 300
    # The broker of a test has its test API at an address; options of ours that are set are told.
    assert {name for name in ours if name.startswith("odradek.")} <= {TEST_API_LISTEN}
    for name in sorted((theirs.keys() | ours.keys()) - {TEST_API_LISTEN}):
        pair.compare(name, theirs.get(name), ours.get(name))
