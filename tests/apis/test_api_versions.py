"""ApiVersions: the table, as clients learn it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from odradek.apis import api_versions as versions
from odradek.coordinator.cluster.changes import ClientMetricsOwner
from odradek.coordinator.cluster.features import NODE_FEATURES, Feature
from odradek.coordinator.cluster.view import ClusterView
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest


def ask(node, version, name="apache-kafka-java", software_version="4.3.1"):
    if version < 3:
        return node.ask(ApiVersionsRequest(), version)
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return node.ask(request, version)


@pytest.mark.parametrize("version", range(6))
def test_what_is_in_the_table_is_advertised(node, version):
    node.set_configs(ClientMetricsOwner("any"), {"metrics": "*"})  # without it client metrics are not
    response = ask(node, version)
    told = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert told == {key: (one.api.versions[0], one.api.versions[-1]) for key, one in node.apis.items()}
    assert response.error_code == ErrorCode.NONE
    assert [one.api_key for one in response.api_keys] == sorted(told)


def test_a_clients_name_is_kept_for_its_connection(node):
    ask(node, 4, "my-client", "1.0-rc.1")
    assert node.connection.client_software_name == "my-client"
    assert node.connection.client_software_version == "1.0-rc.1"


@pytest.mark.parametrize(
    ("name", "software_version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1-"), ("ä", "1")]
)
def test_a_bad_name_is_refused(node, name, software_version):
    response = ask(node, 3, name, software_version)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert node.connection.client_software_name == "unknown"


def test_features_that_begin_at_level_0_are_for_version_4_on(node, monkeypatch):
    monkeypatch.setattr(versions, "FEATURES", {"zero.version": Feature(0, 1), "one.version": Feature(1, 2)})
    assert [one.name for one in ask(node, 3).supported_features] == ["one.version"]
    assert [one.name for one in ask(node, 4).supported_features] == ["one.version", "zero.version"]


def test_finalized_features_come_with_their_epoch(node):
    assert {one.name: one.max_version_level for one in ask(node, 3).finalized_features} == {
        "kraft.version": 1,
        "metadata.version": 33,
    }
    assert ask(node, 3).finalized_features_epoch == node.metadata.end_offset - 1
    features = {"one.version": 2, "gone.version": 0}
    node.machine.publisher.view = replace(node.machine.view, features=features, features_epoch=7)
    response = ask(node, 4)
    (feature,) = response.finalized_features
    assert (feature.name, feature.max_version_level, feature.min_version_level) == ("one.version", 2, 2)
    assert response.finalized_features_epoch == 7


KNOWN = {"client_software_name": "c", "client_software_version": "1"}


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("{cluster}", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("{cluster}", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 1, ErrorCode.INVALID_REQUEST),
        ("{cluster}", -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_takes_the_node_for_another_begins_anew(node, cluster_id, node_id, code):
    cluster_id = cluster_id and cluster_id.format(cluster=node.machine.view.cluster_id)
    response = node.ask(ApiVersionsRequest(cluster_id=cluster_id, node_id=node_id, **KNOWN), 5)
    assert response.error_code == code
    assert bool(response.api_keys) == (code == ErrorCode.NONE)
    assert (response.finalized_features_epoch > 0) == (code == ErrorCode.NONE)


def of_a_cluster(controllers):
    """What a node tells that serves Produce itself and forwards CreateTopics and DeleteTopics."""
    served = {20: range(7), 0: range(14), 19: range(8)}
    handler = versions.ApiVersions(1, ClusterView, served, lambda: controllers)
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    connection = SimpleNamespace(client_software_name="", client_software_version="")
    response = handler(request, SimpleNamespace(api_version=4, connection=connection))
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}, response


@pytest.mark.parametrize(
    ("controllers", "expected"),
    [
        ({}, {0: (0, 13), 19: (0, 7), 20: (0, 6)}),
        ({19: (2, 7), 20: (1, 9)}, {0: (0, 13), 19: (2, 7), 20: (1, 6)}),
        ({19: (0, 5), 20: (7, 9)}, {0: (0, 13), 19: (0, 5)}),
        ({0: (3, 4), 19: (0, 7)}, {0: (0, 13), 19: (0, 7)}),
    ],
)
def test_a_forwarded_api_has_the_versions_that_the_controllers_serve_as_well(controllers, expected):
    assert of_a_cluster(controllers)[0] == expected


def test_a_node_of_a_cluster_tells_the_features_that_it_registers():
    told = of_a_cluster({})[1].supported_features
    assert {one.name: (one.min_version, one.max_version) for one in told} == NODE_FEATURES
