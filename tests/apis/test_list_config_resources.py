"""ListConfigResources: the names of what can have settings."""

import pytest

from odradek.coordinator.cluster.changes import ClientMetricsOwner, GroupOwner
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def full_node(node):
    node.create("a")
    node.create("b")
    node.set_configs(GroupOwner("g"), {"consumer.session.timeout.ms": "50000"})
    return node


def listed(node, *types):
    response = node.ask(ListConfigResourcesRequest(resource_types=list(types)), 1)
    assert response.error_code == 0
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_every_type_is_listed_when_none_is_asked_for(full_node):
    assert listed(full_node) == [(GROUP, "g"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "a"), (TOPIC, "b")]


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ([TOPIC], ["a", "b"]),
        ([GROUP, GROUP], ["g"]),
        ([BROKER, GROUP], ["g", "1"]),
        ([CLIENT_METRICS], []),
    ],
)
def test_only_the_types_that_are_asked_for_are_listed_and_each_once(full_node, types, names):
    assert [name for _, name in listed(full_node, *types)] == names


def test_a_group_is_listed_while_it_has_settings_of_its_own(full_node):
    full_node.set_configs(GroupOwner("g"), {})
    assert listed(full_node, GROUP) == []


@pytest.mark.parametrize("kind", [0, 1, 64, 99, -1])
def test_an_unknown_type_refuses_the_whole_request(full_node, kind):
    response = full_node.ask(ListConfigResourcesRequest(resource_types=[TOPIC, kind]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_version_0_lists_subscriptions_to_client_metrics(full_node):
    response = full_node.ask(ListConfigResourcesRequest(), 0)
    assert (response.error_code, response.config_resources) == (0, [])
    full_node.set_configs(ClientMetricsOwner("m"), {"metrics": "*"})
    (listed,) = full_node.ask(ListConfigResourcesRequest(), 0).config_resources
    assert (listed.resource_name, listed.resource_type) == ("m", CLIENT_METRICS)
