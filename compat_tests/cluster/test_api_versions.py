"""ApiVersions and DescribeCluster of a node of a cluster are those of a broker of Kafka beside it."""

from __future__ import annotations

from dataclasses import replace

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import Side
from compat_tests.quorum import CONTROLLER_ID, Controllers, KafkaMember, OdradekMember
from odradek.coordinator.cluster.features import NODE_FEATURES
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_keys, is_forwardable
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def test_supported_features_are_those_that_the_node_has_registered(odradek: OdradekMember) -> None:
    side = Side("odradek", odradek.bootstrap_servers)
    answer = side.ask(VERSIONS, 4)
    side.close()
    found = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    assert found == dict(NODE_FEATURES)


def test_forwarded_apis_have_the_versions_that_kafka_tells(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    """Our controller serves versions that Kafka's broker has dropped: under it the last ones are compared."""
    told = []
    for one in (odradek, kafka):
        side = Side("broker", one.bootstrap_servers)
        answer = side.ask(VERSIONS, 4)
        side.close()
        told.append(
            {
                key.api_key: (0 if Controllers.are_ours else key.min_version, key.max_version)
                for key in answer.api_keys
            }
        )
    ours, theirs = told
    forwarded = [key for key in api_keys() if is_forwardable(key)]
    assert {key: ours.get(key) for key in forwarded} == {key: theirs.get(key) for key in forwarded}


def test_a_controller_takes_any_pair_of_cluster_and_node(controllers: Controllers) -> None:
    """Only brokers compare them with their own (KIP-1242)."""
    side = Side("controller", controllers.bootstrap_servers)
    expected, found = {}, {}
    own = (controllers.cluster_id, CONTROLLER_ID)
    for pair in (own, (None, -1), (own[0], 7), ("another", own[1]), ("another", 7), (None, 7), (own[0], -1)):
        is_half = (pair[0] is None) != (pair[1] == -1)
        expected[pair] = ErrorCode.INVALID_REQUEST if is_half else ErrorCode.NONE
        answer = side.ask(replace(VERSIONS, cluster_id=pair[0], node_id=pair[1]), 5)
        found[pair] = answer.error_code
    side.close()
    assert found == expected


def test_describe_cluster_tells_fenced_brokers_to_those_who_ask(
    controllers: Controllers, odradek: OdradekMember, kafka: KafkaMember
) -> None:
    sides = [Side("broker", one.bootstrap_servers) for one in (odradek, kafka)]
    with OdradekMember(controllers, 42, {"broker.rack": "cellar"}) as third:
        third.stop()

    def brokers(side: Side, *, fenced: bool) -> list[tuple[int, str, int, str | None, bool]]:
        answer = side.ask(DescribeClusterRequest(include_fenced_brokers=fenced), 2)
        return sorted((one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in answer.brokers)

    for fenced in (True, False):
        expected = (42, "127.0.0.1", third.port, "cellar", True)
        wait_until(
            lambda: all((expected in brokers(side, fenced=fenced)) is fenced for side in sides),  # noqa: B023
            "the third broker is fenced",
            seconds=DEADLINE_SECONDS,
        )
        ours, theirs = (brokers(side, fenced=fenced) for side in sides)
        assert ours == theirs
    for side in sides:
        side.close()
