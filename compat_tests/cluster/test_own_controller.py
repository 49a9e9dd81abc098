"""Kafka's tools at the listener of a controller of ours (`--bootstrap-controller`): one of its own,
and that of a node alone."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

import odradek
from compat_tests.combined import NODE_ID, CombinedNode
from compat_tests.reference import kafka_tool

TOOLS = "org.apache.kafka.tools"
ACCESS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Asked(NamedTuple):
    """Who is asked."""

    address: str
    controller_id: int
    cluster_id: str
    broker_ids: frozenset[int]
    """Of its brokers that follow its log."""
    clients_address: str


@pytest.fixture(scope="module", params=["of a cluster", "of a node alone"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with ExitStack() as stack:
        if request.param == "of a cluster":
            cluster = stack.enter_context(
                odradek.Cluster(nodes=2, options=ACCESS, default_replication_factor=2)
            )
            (controller,) = cluster.controllers
            yield Asked(
                controller.bootstrap_controllers,
                controller.node_id,
                cluster.cluster_id,
                frozenset(node.node_id for node in cluster.nodes),
                cluster.bootstrap_servers,
            )
        else:
            node = stack.enter_context(CombinedNode(tmp_path_factory.mktemp("alone"), ACCESS))
            found = re.search(r"cluster ([\w-]{22})", node.child.said())
            assert found is not None
            yield Asked(
                f"127.0.0.1:{node.controller_port}",
                NODE_ID,
                found[1],
                frozenset(),
                f"127.0.0.1:{node.port}",
            )


def ended(asked: Asked, tool: str, *arguments: str) -> tuple[int, str]:
    """Status and output of a tool that asks the controller."""
    at = ("--bootstrap-controller", asked.address)
    # One of them wants the address behind its verb.
    words = (*arguments, *at) if tool == "ClusterTool" else (*at, *arguments)
    finished = kafka_tool(f"{TOOLS}.{tool}", *words, check=False)
    return finished.returncode, finished.stdout + finished.stderr


def told(asked: Asked, tool: str, *arguments: str) -> str:
    """The output of a tool that succeeds."""
    status, output = ended(asked, tool, *arguments)
    assert status == 0, output
    return output


def rows(table: str) -> list[list[str]]:
    """The words of each row of a table, without its head."""
    return [line.split() for line in table.splitlines()[1:] if line.strip()]


def test_the_quorum_is_described(asked: Asked) -> None:
    leader = asked.controller_id
    status = told(asked, "MetadataQuorumCommand", "describe", "--status")
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert facts["ClusterId"].strip() == asked.cluster_id
    assert int(facts["LeaderId"]) == leader
    assert f'"id": {leader}' in facts["CurrentVoters"]
    (endpoint,) = re.findall(r"CONTROLLER://([\d.]+:\d+)", facts["CurrentVoters"])
    if not asked.broker_ids:
        # In a cluster that a program of Python starts, it is that of a proxy.
        assert endpoint == asked.address
    (row,) = rows(told(asked, "ClusterTool", "list-endpoints"))
    assert row == [str(leader), *endpoint.split(":"), "null", "controller"]
    replication = rows(told(asked, "MetadataQuorumCommand", "describe", "--replication"))
    roles = {int(row[0]): row[-1] for row in replication}
    assert roles == {leader: "Leader", **dict.fromkeys(asked.broker_ids, "Observer")}


def test_settings_of_a_broker_and_of_all_are_changed(asked: Asked) -> None:
    for entity in (("--entity-name", "1"), ("--entity-default",)):
        arguments = ("--entity-type", "brokers", *entity, "--alter", "--add-config", "log.cleaner.threads=2")
        assert "Completed updating" in told(asked, "ConfigCommand", *arguments)
    described = told(asked, "ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-default")
    assert "log.cleaner.threads=2" in described


def test_features_and_the_cluster_are_told(asked: Asked) -> None:
    features = told(asked, "FeatureCommand", "describe")
    assert "metadata.version" in features
    assert asked.cluster_id in told(asked, "ClusterTool", "cluster-id")
    # Fenced brokers are asked for at brokers alone.
    status, output = ended(asked, "ClusterTool", "list-endpoints", "--include-fenced-brokers")
    assert status != 0
    assert "only supported with --bootstrap-server" in output


def test_a_level_is_lowered_and_raised(asked: Asked) -> None:
    assert "was downgraded" in told(asked, "FeatureCommand", "downgrade", "--feature", "share.version=1")
    assert "share.version was upgraded to 2" in told(
        asked, "FeatureCommand", "upgrade", "--feature", "share.version=2"
    )
    status, output = ended(asked, "FeatureCommand", "upgrade", "--feature", "share.version=9")
    assert status != 0
    assert f"Local controller {asked.controller_id} only supports versions 0-2" in output


def test_rules_are_made_listed_and_removed(asked: Asked) -> None:
    rule = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
    assert "User:ann" in told(asked, "AclCommand", "--add", *rule)
    assert "principal=User:ann" in told(asked, "AclCommand", "--list", "--topic", "orders")
    told(asked, "AclCommand", "--remove", "--force", *rule)
    assert "principal=User:ann" not in told(asked, "AclCommand", "--list", "--topic", "orders")


def test_no_voter_is_added_or_removed(asked: Asked, tmp_path: pathlib.Path) -> None:
    """The only one is not removed, as at Kafka's with one voter; another one is not added, unlike there."""
    described = rows(told(asked, "MetadataQuorumCommand", "describe", "--replication"))
    (own,) = [row[1] for row in described if row[-1] == "Leader"]
    status, output = ended(
        asked,
        "MetadataQuorumCommand",
        "remove-controller",
        "--controller-id",
        str(asked.controller_id),
        "--controller-directory-id",
        own,
    )
    assert status != 0
    assert "VoterNotFoundException" in output
    assert f"Cannot remove voter ReplicaKey(id={asked.controller_id}, directoryId={own})" in output
    # The tool reads who is to be added from the configuration and the directory of that controller.
    directory = tmp_path / "second"
    directory.mkdir()
    (directory / "meta.properties").write_text(
        f"version=1\ncluster.id={asked.cluster_id}\nnode.id=77\ndirectory.id=AAAAAAAAAAAAAAAAAAAABw\n"
    )
    config = tmp_path / "second.properties"
    config.write_text(
        "process.roles=controller\nnode.id=77\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:1\nlog.dirs={directory}\n"
        f"controller.quorum.bootstrap.servers={asked.address}\n"
    )
    finished = kafka_tool(
        f"{TOOLS}.MetadataQuorumCommand",
        *("--command-config", str(config), "--bootstrap-controller", asked.address, "add-controller"),
        check=False,
    )
    assert finished.returncode != 0
    assert "InvalidRequestException" in finished.stdout + finished.stderr
    assert "none are added" in finished.stdout + finished.stderr


def test_tools_for_clients_have_no_such_option(asked: Asked) -> None:
    status, output = ended(asked, "TopicCommand", "--list")
    assert status != 0
    assert "bootstrap-controller is not a recognized option" in output


def test_versions_of_apis_are_told_to_the_tool_that_asks_brokers(asked: Asked) -> None:
    finished = kafka_tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", asked.clients_address)
    assert "Produce(0): " in finished.stdout
    # It asks for the brokers first, and a controller names none.
    finished = kafka_tool(
        f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", asked.address, check=False
    )
    assert finished.returncode != 0 or "Produce(0): " not in finished.stdout


def test_a_broker_that_is_gone_is_unregistered() -> None:
    with odradek.Cluster(nodes=2) as cluster:
        cluster.node(2).stop()
        address = cluster.controllers[0].bootstrap_controllers
        finished = kafka_tool(
            f"{TOOLS}.ClusterTool", "unregister", "--bootstrap-controller", address, "--id", "2"
        )
        assert "no longer registered" in finished.stdout
