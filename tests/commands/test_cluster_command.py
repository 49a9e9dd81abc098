"""`odradek cluster` at a broker of ours, and health at clusters that a stand-in answers for."""

import pytest

import odradek
from odradek.client.admin.health import check_health
from odradek.client.client_error import ClientError, Disconnected
from odradek.client.cluster import ANY_NODE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

SOUND = {
    "brokers_fenced",
    "partitions_without_leader",
    "partitions_with_offline_replicas",
    "partitions_under_replicated",
    "brokers_that_do_not_answer",
    "log_dirs_offline",
    "log_dirs_nearly_full",
}


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(options={"broker.rack": "r1"}) as running:
        yield running


@pytest.fixture
def cluster_command(odradek_command):
    return lambda *arguments: odradek_command("cluster", *arguments)


def test_the_brokers_have_address_rack_and_release(cluster_command, broker):
    (row,) = cluster_command("info", "--output", "json").rows
    assert len(row.pop("cluster_id")) == 22
    assert row == {
        "broker": 1,
        "host": "127.0.0.1",
        "port": int(broker.bootstrap_servers.rpartition(":")[2]),
        "rack": "r1",
        "controller": True,
        "fenced": False,
        "release": "4.4",
        "metadata_version": 33,
    }
    heading, _, line = cluster_command("info").out.splitlines()
    assert heading.endswith(": 1 broker")
    assert f" {row['port']} " in line, "a port is no quantity"


def test_a_sound_cluster_is_healthy(cluster_command, odradek_command):
    odradek_command("topics", "create", "sound", "-p", "3")
    ended = cluster_command("health")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[-1] == "The cluster is healthy."
    assert [line[:6] for line in lines[:-1]] == [" ok   "] * len(SOUND)
    rows = cluster_command("health", "--output", "json").rows
    assert {row["check"] for row in rows if row["healthy"]} == SOUND
    partitions = sum(row["partitions"] for row in odradek_command("topics", "list", "--output", "json").rows)
    assert {row["of"] for row in rows if row["check"].startswith("partitions")} == {partitions}


def test_a_disk_with_less_space_than_wanted_is_told(cluster_command):
    ended = cluster_command("health", "--min-free", "100")
    assert ended.status == 1
    assert (
        "FAIL  log dirs nearly full: 1 of 1: less than 100 % of the volume is free: broker 1: /" in ended.out
    )
    assert ended.out.endswith("The cluster is not healthy.\n")
    ended = cluster_command("health", "--min-free", "much")
    assert (ended.status, ended.err) == (
        1,
        "odradek: --min-free is 'much': it has to be a number from 0 to 100\n",
    )


def test_features_are_finalized_or_only_supported(cluster_command):
    rows = {row["feature"]: row for row in cluster_command("features", "--output", "json").rows}
    assert rows["metadata.version"] == {
        "feature": "metadata.version",
        "finalized_level": 33,
        "supported_min": 7,
        "supported_max": 33,
        "finalized_version": "4.4-IV2",
        "supported_min_version": "3.3-IV3",
        "supported_max_version": "4.4-IV2",
    }
    assert rows["share.version"]["finalized_level"] == 2
    shown = [line.split() for line in cluster_command("features").out.splitlines()]
    assert shown[0] == ["feature", "finalized", "lowest", "highest"]
    assert ["metadata.version", "4.4-IV2", "3.3-IV3", "4.4-IV2"] in shown
    assert ["share.version", "2", "0", "2"] in shown
    (row,) = cluster_command("info", "--output", "json").rows
    assert (row["release"], row["metadata_version"]) == ("4.4", 33)
    assert " 4.4-IV2" in cluster_command("info").out


def test_directories_have_the_bytes_of_their_replicas(cluster_command, odradek_command, cluster):
    from tests.client.topics import produce

    odradek_command("topics", "create", "stored", "-p", "2")
    before = cluster_command("log-dirs", "--output", "json").rows[0]
    produce(cluster, "stored", 0, [b"v" * 1000], timestamp=1)
    (row,) = cluster_command("log-dirs", "--broker", "1", "--output", "json").rows
    assert row["size_bytes"] - before["size_bytes"] > 1000
    assert (row["broker"], row["online"], row["cordoned"]) == (1, True, False)
    assert 0 < row["usable_bytes"] < row["total_bytes"]
    odradek_command("topics", "create", "more", "-p", "4")
    (after,) = cluster_command("log-dirs", "--output", "json").rows
    assert after["replicas"] == row["replicas"] + 4
    ended = cluster_command("log-dirs", "--broker", "5", "--timeout", "0.2")
    assert (ended.status, ended.out) == (1, "")
    assert "DescribeLogDirs at broker 5 failed" in ended.err


# Clusters that are not healthy ------------------------------------------------------------------------


class Ill:
    """Answers as a cluster of three brokers would."""

    def __init__(self, partitions=(), directories=(), *, fenced=(), silent=(), version=2):
        self.partitions, self.directories = list(partitions), dict(directories)
        self.fenced, self.silent, self.version = fenced, silent, version

    def version_of(self, target, request_class):
        assert request_class is DescribeClusterRequest
        return self.version

    def read_metadata(self, request):
        return self.ask(ANY_NODE, request)

    def ask(self, target, request, *, version_max=None):
        if isinstance(request, DescribeClusterRequest):
            assert request.include_fenced_brokers == (version_max >= 2)
            brokers = [
                DescribeClusterBroker(broker_id=one, host="h", port=1, is_fenced=one in self.fenced)
                for one in (1, 2, 3)
            ]
            return DescribeClusterResponse(
                throttle_time_ms=0,
                error_code=0,
                cluster_id="c",
                controller_id=1,
                brokers=brokers,
            )
        if isinstance(request, MetadataRequest):
            topic = MetadataResponseTopic(
                error_code=0, name="t", topic_id=bytes(16), is_internal=False, partitions=self.partitions
            )
            brokers = [MetadataResponseBroker(node_id=one, host="h", port=1) for one in (1, 2, 3)]
            return MetadataResponse(throttle_time_ms=0, brokers=brokers, topics=[topic])
        if target in self.silent:
            raise Disconnected("it is gone")
        code, usable = self.directories.get(target, (0, 90))
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return DescribeLogDirsResponse(throttle_time_ms=0, error_code=code, results=[])
        result = DescribeLogDirsResult(
            error_code=code, log_dir=f"/d{target}", topics=[], total_bytes=100, usable_bytes=usable
        )
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])


def partition(number, leader=1, in_sync=(1, 2), offline=()):
    return MetadataResponsePartition(
        error_code=0 if leader >= 0 else int(ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=number,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=[1, 2],
        isr_nodes=list(in_sync),
        offline_replicas=list(offline),
    )


@pytest.mark.parametrize(
    ("ill", "found"),
    [
        (Ill([partition(0)]), {}),
        (Ill(fenced=[2]), {"brokers_fenced": ["broker 2"]}),
        (
            Ill([partition(0), partition(1, leader=-1, in_sync=[1, 2])]),
            {"partitions_without_leader": ["t-1"]},
        ),
        (Ill([partition(0, in_sync=[1]), partition(1)]), {"partitions_under_replicated": ["t-0"]}),
        (Ill([partition(0, offline=[2])]), {"partitions_with_offline_replicas": ["t-0"]}),
        (Ill(silent=[3]), {"brokers_that_do_not_answer": ["broker 3: it is gone"]}),
        (
            Ill(directories={1: (int(ErrorCode.KAFKA_STORAGE_ERROR), -1)}),
            {"log_dirs_offline": ["broker 1: /d1 (KAFKA_STORAGE_ERROR)"]},
        ),
        (Ill(directories={2: (0, 4)}), {"log_dirs_nearly_full": ["broker 2: /d2 (4.0% free)"]}),
    ],
)
def test_each_fault_is_found_and_nothing_else(ill, found):
    checks = list(check_health(ill, 5))
    assert {check.name for check in checks} == SOUND
    assert {check.name: check.found for check in checks if not check.is_well} == found
    assert [check.name for check in checks if check.unknown] == []


def test_what_old_brokers_do_not_tell_is_not_known():
    checks = {check.name: check for check in check_health(Ill(version=1), 5)}
    assert checks["brokers_fenced"].unknown.startswith("the brokers do not tell")
    refused = {one: (int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), -1) for one in (1, 2, 3)}
    checks = {check.name: check for check in check_health(Ill(directories=refused), 5)}
    for name in ("log_dirs_offline", "log_dirs_nearly_full"):
        assert "CLUSTER_AUTHORIZATION_FAILED" in checks[name].unknown
        assert checks[name].is_well


def test_a_fenced_broker_is_not_asked():
    checks = {check.name: check for check in check_health(Ill(fenced=[3], silent=[3]), 5)}
    assert checks["brokers_that_do_not_answer"].is_well


def test_a_cluster_that_does_not_answer_is_a_sentence(run):
    ended = run("cluster", "health", "-b", "127.0.0.1:1", "--timeout", "0.1")
    assert (ended.status, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == 1
    assert issubclass(Disconnected, ClientError)
