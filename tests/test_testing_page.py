"""The first page about tests, docs/testing.md: its tables name all that kfake and librdkafka's mock cluster
have, and what they name of ours is there."""

import inspect
import re

import odradek
from odradek.config.options import BROKER_OPTIONS
from odradek.embedding.embedded_cluster import Node
from odradek.embedding.faults import Fault, Faults
from tests.kit.collecting import collected
from tests.kit.pages import DOCS


def names_in(text):
    return text.split()


KFAKE = names_in("""
    MustCluster NewCluster ListenAddrs Close Control ControlKey KeepControl DropControl SleepControl
    CurrentNode MoveTopicPartition CoordinatorFor LeaderFor RehashCoordinators AddNode RemoveNode
    ShufflePartitionLeaders SetFollowers Compact ApplyRetention NumBrokers Ports ListenFn WithLogger ClusterID
    AllowAutoTopicCreation DefaultNumPartitions GroupMinSessionTimeout GroupMaxSessionTimeout EnableSASL
    Superuser TLS SeedTopics SleepOutOfOrder MaxVersions EnableACLs ACL BrokerConfigs DataDir SyncWrites User
    BatchRecords LogLevel Logger BasicLogger TopicInfo PartitionInfo TopicIDInfo PartitionInfos VirtualNetwork
""")
"""Exported functions, methods of Cluster and types of franz-go's pkg/kfake at adb3a18a, those that a test
calls."""
MOCK = names_in("""
    broker_add broker_decommission broker_error_stack_cnt broker_push_request_error_rtts
    broker_remove_from_metadata broker_set_down broker_set_host_port broker_set_rack broker_set_rtt
    broker_set_up cgrp_consumer_target_assignment clear_request_errors clear_requests cluster_bootstraps
    cluster_destroy cluster_handle cluster_new coordinator_set get_requests group_initial_rebalance_delay_ms
    partition_delete_records partition_push_leader_response partition_push_request_errors
    partition_set_follower partition_set_follower_wmarks partition_set_leader push_request_errors
    push_request_errors_array request_api_key request_destroy request_destroy_array request_id
    request_timestamp set_apiversion set_group_consumer_heartbeat_interval_ms
    set_group_consumer_session_timeout_ms sharegroup_get_member_ids sharegroup_set_auto_offset_reset
    sharegroup_set_heartbeat_interval sharegroup_set_isolation_level sharegroup_set_max_delivery_attempts
    sharegroup_set_max_fetch_sessions sharegroup_set_max_record_locks sharegroup_set_max_size
    sharegroup_set_record_lock_duration sharegroup_set_session_timeout sharegroup_target_assignment
    start_request_tracking stop_request_tracking telemetry_set_push_interval telemetry_set_requested_metrics
    topic_create topic_delete topic_set_error
""")
"""Functions of librdkafka's rdkafka_mock.h at 4c3b017c3, without `rd_kafka_mock_`; `_new` and `_destroy` of a
target assignment are in the row of that."""
OTHERS_OF_MOCK = ["rd_kafka_handle_mock_cluster", "test.mock.num.brokers", "test.mock.broker.rtt"]
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
OURS = {"broker": odradek.Broker, "cluster": odradek.Cluster, "node": Node, "faults": Faults, "fault": Fault}


def rows():
    """Theirs and ours, of both tables."""
    section = (DOCS / "testing.md").read_text().partition("## From kfake and librdkafka's mock cluster")[2]
    found = [row for row in ROW.findall(section) if not row[0].startswith(("---", "kfake", "librdkafka"))]
    assert len(found) > 50
    return found


def test_nothing_of_theirs_is_missing():
    named = {name for theirs, _ in rows() for name in re.findall(r"`([^`]+)`", theirs)}
    short = {name[1:] for name in named if name.startswith("_")}
    assert [name for name in KFAKE if name not in named] == []
    assert [name for name in OTHERS_OF_MOCK if name not in named] == []
    missing = [
        name
        for name in MOCK
        if f"rd_kafka_mock_{name}" not in named and not any(name.endswith(one) for one in short)
    ]
    assert missing == []


def test_what_takes_its_place_is_there():
    options = {name.replace(".", "_") for name in BROKER_OPTIONS}
    arguments = set(inspect.signature(Faults.add).parameters)
    for one in (odradek.Broker, odradek.Cluster, odradek.Cluster.move_leader, Node.partition_from):
        arguments |= set(inspect.signature(one).parameters)
    arguments |= {"transactional_id", "with_records", "days"}
    with collected() as failures:
        for theirs, ours in rows():
            with failures.of(theirs):
                code = " ".join(re.findall(r"`([^`]+)`", ours))
                for owner, name in re.findall(r"\b(broker|cluster|node|faults|fault)\.(\w+)\b(?!\.ms)", code):
                    assert hasattr(OURS[owner], name) or f"{owner}.{name}" == "broker.rack", f"{owner}.{name}"
                for name in re.findall(r"\b([a-z_]+)=", re.sub(r"\S+\.\S+=\S+|metrics=", "", code)):
                    assert name in arguments or name in options, name
                for name in re.findall(r"`([a-z]+_[a-z_]+)`", ours):
                    assert name in options or name in arguments, name


def test_each_page_about_tests_is_a_click_away():
    page = (DOCS / "testing.md").read_text()
    others = sorted(path.name for path in DOCS.glob("testing-*.md"))
    assert len(others) >= 6
    first_screen = "\n".join(page.splitlines()[:40])
    assert [name for name in others if f"({name}" not in first_screen] == []


def test_each_link_to_a_heading_leads_to_one():
    with collected() as failures:
        for page in [*sorted(DOCS.glob("testing*.md")), DOCS / "python.md"]:
            with failures.of(page.name):
                for name, anchor in LINK.findall(page.read_text()):
                    if not name.startswith("http"):
                        assert anchor in anchors(page.parent / (name or page.name)), f"{name}#{anchor}"


def anchors(page):
    """Anchors of headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in HEADING.findall(page.read_text())
    }
