"""Kafka's tools at the listener of a controller of ours (`--bootstrap-controller`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import odradek
from compat_tests.clients import PATIENCE_SECONDS
from compat_tests.reference import tool_command

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def cluster() -> Iterator[odradek.Cluster]:
    with odradek.Cluster(nodes=2, default_replication_factor=2) as cluster:
        yield cluster


def told(cluster: odradek.Cluster, tool: str, *arguments: str) -> str:
    """The output of a tool that asks the controller."""
    address = cluster.controllers[0].bootstrap_controllers
    at = ("--bootstrap-controller", address)
    # One of them wants the address behind its verb.
    words = (*arguments, *at) if tool == "ClusterTool" else (*at, *arguments)
    command = tool_command(f"{TOOLS}.{tool}", *words)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_quorum_is_described(cluster: odradek.Cluster) -> None:
    leader = cluster.controllers[0].node_id
    status = told(cluster, "MetadataQuorumCommand", "describe", "--status")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert facts["ClusterId"].strip() == cluster.cluster_id
    assert int(facts["LeaderId"]) == leader
    assert f'"id": {leader}' in facts["CurrentVoters"]
    replication = told(cluster, "MetadataQuorumCommand", "describe", "--replication").splitlines()
    roles = {int(row.split()[0]): row.split()[-1] for row in replication[1:]}
    assert roles == {leader: "Leader", **{node.node_id: "Observer" for node in cluster.nodes}}


def test_settings_of_a_broker_and_of_all_are_changed(cluster: odradek.Cluster) -> None:
    for entity in (("--entity-name", "1"), ("--entity-default",)):
        arguments = ("--entity-type", "brokers", *entity, "--alter", "--add-config", "log.cleaner.threads=2")
        assert "Completed updating" in told(cluster, "ConfigCommand", *arguments)
    described = told(cluster, "ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-default")
    assert "log.cleaner.threads=2" in described


def test_features_and_endpoints_are_told(cluster: odradek.Cluster) -> None:
    features = told(cluster, "FeatureCommand", "describe")
    assert "metadata.version" in features
    endpoints = told(cluster, "ClusterTool", "list-endpoints")
    assert str(cluster.controllers[0].node_id) in endpoints
    assert cluster.cluster_id in told(cluster, "ClusterTool", "cluster-id")


def test_a_broker_that_is_gone_is_unregistered() -> None:
    with odradek.Cluster(nodes=2) as cluster:
        cluster.node(2).stop()
        assert "no longer registered" in told(cluster, "ClusterTool", "unregister", "--id", "2")
