"""The endpoint of `--metrics`: its values are those that clients made, its limits hold."""

import contextlib
import gzip
import http.client
import os
import pathlib
import re
import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, TopicPartition

import odradek
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import ANY_NODE, Cluster, coordinator_of
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.config.broker_config import ConfigError, load
from odradek.embedding.free_port import free_port
from odradek.server.coordination.coordinators import Lazy
from odradek.server.metrics import endpoint
from odradek.server.metrics.details import reasons_not_ready
from odradek.server.metrics.exposition import label_text, pieces
from odradek.server.metrics.families import FAMILIES, FAMILY
from odradek.server.metrics.page import page
from odradek.server.network import http_server
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import share_fetch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.client.topics import ask, delete_records, produce
from tests.raw_client import RawClient
from tests.server.scrape import get, scraped, until

GROUP = 32
"""A type of resource."""
FREE = "odradek_log_dir_free_bytes"


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def broker(port):
    options = {
        "odradek.metrics.listen": str(port),
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.assignment.interval.ms": "0",
    }
    with odradek.Broker(options=options) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


def test_topics_count_what_clients_write_and_read(port, cluster):
    create_topic(cluster, "counted", 2, {})
    before = scraped(port)
    produce(cluster, "counted", 0, [b"v" * 100] * 5)
    produce(cluster, "counted", 1, [b"v" * 100] * 7)
    after = scraped(port)

    def grown(name, **labels):
        key = name, label_text(**labels)
        return after.get(key, 0) - before.get(key, 0)

    jmx = "kafka_server_brokertopicmetrics_"
    assert grown(f"{jmx}messagesin_total", topic="counted") == 12
    assert grown(f"{jmx}totalproducerequests_total", topic="counted") == 2
    size = sum(
        after["kafka_log_log_size", label_text(topic="counted", partition=number)] for number in range(2)
    )
    assert grown(f"{jmx}bytesin_total", topic="counted") == size
    assert grown("kafka_network_requestmetrics_requests_total", request="Produce", version=11) == 2
    assert grown("odradek_request_seconds_count", request="Produce") == 2
    assert grown("odradek_request_seconds_bucket", request="Produce", le="+Inf") == 2
    assert after["kafka_topic_partition_current_offset", label_text(topic="counted", partition=1)] == 7
    assert after["kafka_topic_partitions", label_text(topic="counted")] == 2
    assert after["kafka_cluster_partition_atminisr", label_text(topic="counted", partition=0)] == 1
    assert after["kafka_cluster_partition_underminisr", label_text(topic="counted", partition=0)] == 0
    assert after["odradek_ready", None] == 1


def test_a_topic_with_fewer_replicas_than_its_minimum_is_at_it_and_not_under_it(port, cluster):
    create_topic(cluster, "small", 1, {"min.insync.replicas": "2"})
    samples = scraped(port)
    labels = label_text(topic="small", partition=0)
    assert samples["kafka_cluster_partition_atminisr", labels] == 1
    assert samples["kafka_cluster_partition_underminisr", labels] == 0


def test_what_consumers_read_is_counted_once(port, cluster, broker):
    from odradek.client.fetching import Fetcher

    create_topic(cluster, "read", 1, {})
    produce(cluster, "read", 0, [b"v" * 100] * 5)
    fetched = list(Fetcher(cluster, "read", 0, 0, 5, read_committed=False))
    samples = scraped(port)
    jmx = "kafka_server_brokertopicmetrics_"
    size = sum(len(one.buffer) for one in fetched)
    assert samples[f"{jmx}bytesout_total", label_text(topic="read")] == size
    assert samples[f"{jmx}totalfetchrequests_total", label_text(topic="read")] == len(fetched)


def test_what_is_refused_is_counted_by_topic_unless_kafka_expects_it(port, cluster, broker):
    refusing = {"max.message.bytes": "1000", "message.timestamp.before.max.ms": "60000"}
    create_topic(cluster, "refusing", 1, {**refusing, "compression.type": "zstd"})

    def failed(api):
        name = f"kafka_server_brokertopicmetrics_failed{api}requests_total"
        return scraped(port).get((name, label_text(topic="refusing")), 0)

    now_ms = round(time.time() * 1000)
    with pytest.raises(AssertionError, match=f"error_code={ErrorCode.MESSAGE_TOO_LARGE}"):
        produce(cluster, "refusing", 0, [os.urandom(2000)], timestamp=now_ms)
    assert failed("produce") == 0
    with pytest.raises(AssertionError, match=f"error_code={ErrorCode.INVALID_TIMESTAMP}"):
        produce(cluster, "refusing", 0, [b"v"], timestamp=now_ms - 600_000)
    assert failed("produce") == 1
    produce(cluster, "refusing", 0, [b"v"], timestamp=now_ms)
    assert (failed("produce"), failed("fetch")) == (1, 0)
    with RawClient(broker.port) as client:
        # Version 3 knows no zstd.
        for offset, code in (
            (99, ErrorCode.OFFSET_OUT_OF_RANGE),
            (0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
            request = FetchRequest(topics=[FetchTopic(topic="refusing", partitions=[wanted])])
            version = 3 if code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE else 10
            (answer,) = client.ask(request, version).responses[0].partitions
            assert answer.error_code == code
    assert (failed("produce"), failed("fetch")) == (1, 1)


def test_fetches_are_those_of_consumers_where_nobody_follows(port, cluster):
    from odradek.client.fetching import Fetcher

    create_topic(cluster, "fetched", 1, {})
    produce(cluster, "fetched", 0, [b"v"])
    assert list(Fetcher(cluster, "fetched", 0, 0, 1, read_committed=False))
    requests = "kafka_network_requestmetrics_requests_total"
    counts = {labels: number for (name, labels), number in scraped(port).items() if name == requests}
    fetches = {labels: number for labels, number in counts.items() if '"Fetch"' in labels}
    assert fetches
    for labels, number in fetches.items():
        assert counts[labels.replace('"Fetch"', '"FetchConsumer"')] == number
    assert not any('"FetchFollower"' in labels for labels in counts)


def test_the_lag_of_a_group_is_exact_and_never_negative(port, cluster):
    create_topic(cluster, "lagging", 2, {})
    now_ms = round(time.time() * 1000)
    produce(cluster, "lagging", 0, [b"v"] * 10, timestamp=now_ms - 60_000)
    produce(cluster, "lagging", 1, [b"v"] * 10, timestamp=now_ms - 60_000)
    commit(cluster, "behind", {("lagging", 0): (4, ""), ("lagging", 1): (10, "")})
    commit(cluster, "ahead", {("lagging", 0): (99, "")})
    samples = scraped(port)

    def lag(group, partition):
        labels = label_text(consumergroup=group, topic="lagging", partition=partition)
        return samples["kafka_consumergroup_lag", labels]

    assert (lag("behind", 0), lag("behind", 1), lag("ahead", 0)) == (6, 0, 0)
    behind = label_text(consumergroup="behind", topic="lagging")
    assert samples["kafka_consumergroup_lag_sum", behind] == 6
    assert samples["kafka_consumergroup_current_offset_sum", behind] == 14
    assert 59 <= samples["odradek_consumergroup_lag_seconds", behind] <= 120
    ahead = label_text(consumergroup="ahead", topic="lagging")
    assert samples["odradek_consumergroup_lag_seconds", ahead] == 0
    assert samples["odradek_consumergroup_offsets_past_end", label_text(consumergroup="ahead")] == 1
    commit(cluster, "behind", {("lagging", 0): (10, "")})
    samples = scraped(port)
    assert samples["odradek_consumergroup_lag_seconds", behind] == 0


def test_the_lag_counts_from_the_commit_also_below_the_log_start(port, cluster):
    create_topic(cluster, "trimmed", 1, {})
    produce(cluster, "trimmed", 0, [b"v"] * 10)
    commit(cluster, "slow", {("trimmed", 0): (2, "")})
    delete_records(cluster, "trimmed", 0, 7)
    labels = label_text(consumergroup="slow", topic="trimmed", partition=0)
    assert scraped(port)["kafka_consumergroup_lag", labels] == 8
    delete_records(cluster, "trimmed", 0, 10)
    samples = scraped(port)
    assert samples["kafka_consumergroup_lag", labels] == 8
    # Nothing is left to read.
    of_topic = label_text(consumergroup="slow", topic="trimmed")
    assert samples["odradek_consumergroup_lag_seconds", of_topic] == 0


def without_commit(port, group):
    labels = label_text(consumergroup=group)
    return scraped(port).get(("odradek_consumergroup_partitions_without_commit", labels))


def test_partitions_that_a_classic_member_has_without_a_commit_are_counted(port, cluster, broker):
    create_topic(cluster, "owned", 5, {})
    commit(cluster, "classics", {("owned", 3): (0, "")})
    assert without_commit(port, "classics") == 0
    # librdkafka's and not kafka-python's: that one may assign before it knows the topic and never look again.
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "classics", "enable.auto.commit": False}
    )
    consumer.subscribe(["owned"])
    with contextlib.closing(consumer):
        until(lambda: consumer.poll(0.02) or consumer.assignment(), lambda assigned: len(assigned) == 5)
        assert without_commit(port, "classics") == 4
        consumer.commit(offsets=[TopicPartition("owned", 0, 0)], asynchronous=False)
        assert without_commit(port, "classics") == 3
    assert without_commit(port, "classics") == 0


def test_offsets_and_classic_groups_are_counted_by_kafkas_names(port, cluster):
    coordinator = "kafka_server_group_coordinator_metrics"

    def counted():
        samples = scraped(port)
        states = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
        of_states = [samples[f"{coordinator}_classic_group_count", label_text(state=one)] for one in states]
        return samples[f"{coordinator}_offset_count", None], of_states

    create_topic(cluster, "counted", 2, {})
    offsets, (empty, *others) = counted()
    commit(cluster, "counting", {("counted", 0): (0, ""), ("counted", 1): (0, "")})
    assert counted() == (offsets + 2, [empty + 1, *others])


def test_partitions_that_consumers_and_streams_have_without_a_commit_are_counted(port, cluster, broker):
    create_topic(cluster, "joined", 3, {})
    commit(cluster, "consumers", {("joined", 1): (0, "")})
    member = {"group_id": "consumers", "member_id": "m", "rebalance_timeout_ms": 60_000}
    with RawClient(broker.port) as client:
        subscribed = ConsumerGroupHeartbeatRequest(
            **member, subscribed_topic_names=["joined"], topic_partitions=[]
        )
        beat_until_assigned(client, 1, subscribed, ConsumerGroupHeartbeatRequest(**member), "assignment")
        assert without_commit(port, "consumers") == 2
        member |= {"group_id": "streams"}
        reading = Subtopology(
            subtopology_id="0",
            source_topics=["joined"],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        topology = Topology(epoch=0, subtopologies=[reading])
        joining = StreamsGroupHeartbeatRequest(
            **member,
            topology=topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )
        beat_until_assigned(client, 0, joining, StreamsGroupHeartbeatRequest(**member), "active_tasks")
        assert without_commit(port, "streams") == 3


def beat_until_assigned(client, version, joining, staying, attribute):
    client.ask(FindCoordinatorRequest(coordinator_keys=[joining.group_id], key_type=0), 6)
    answers = [until(lambda: client.ask(joining, version), lambda one: not one.error_code)]

    def beat():
        answers.append(client.ask(replace(staying, member_epoch=answers[-1].member_epoch), version))
        return answers[-1]

    if not getattr(answers[0], attribute):
        until(beat, lambda one: getattr(one, attribute))


def test_the_disk_has_what_the_logs_have(port, cluster, broker):
    create_topic(cluster, "stored", 1, {})
    produce(cluster, "stored", 0, [b"v" * 1000] * 5)
    samples = until(lambda: scraped(port), lambda one: any(name == FREE for name, _ in one))
    (labels,) = [labels for name, labels in samples if name == FREE]
    logs = sum(value for (name, _), value in samples.items() if name == "kafka_log_log_size")
    # The logs of internal topics have no series of their own.
    assert samples["odradek_log_dir_used_bytes", labels] >= logs > 5_000
    assert 0 < samples[FREE, labels] <= samples["odradek_log_dir_total_bytes", labels]
    assert samples["odradek_log_dir_space_age_seconds", labels] >= 0


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="only Linux counts this")
def test_what_linux_counts_for_the_process_is_told_by_kafkas_names(port, cluster):
    """The broker is in this process, which has read at least what is here."""
    with open("/proc/self/io", encoding="ascii") as file:
        before = {name: int(value) for name, value in (line.split(": ") for line in file)}
    samples = scraped(port)
    after = {name: samples["kafka_server_kafkaserver_linux_disk_" + name, None] for name in before}
    assert len(after) == 7
    assert not {name for name in before if after[name] < before[name]}
    assert after["rchar"] > before["rchar"]


def test_errors_are_counted_by_their_names(port, cluster, broker):
    cluster.partitions_of(["there-is-no-such-topic"])
    known = {"client_software_name": "c", "client_software_version": "1"}
    with RawClient(broker.port) as client:
        told = client.ask(ApiVersionsRequest(cluster_id="another", node_id=1, **known), 5)
    assert told.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    samples = scraped(port)
    for request, error in (
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("ApiVersions", "REBOOTSTRAP_REQUIRED"),
    ):
        labels = label_text(request=request, error=error)
        assert samples["kafka_network_requestmetrics_errors_total", labels] >= 1


def test_a_scrape_has_each_family_once_with_help_and_type(port, cluster):
    create_topic(cluster, "of-each", 1, {})
    produce(cluster, "of-each", 0, [b"v"])
    produce(cluster, "of-each", 0, [b"v"] * 2)
    commit(cluster, "of-each", {("of-each", 0): (0, "")})
    share(cluster, "each", "of-each")
    cluster.partitions_of(["not-there"])
    _, body = get(port, "/metrics")
    heads = re.findall(r"# HELP ([a-z_]+) ", body.decode())
    assert len(heads) == len(set(heads))
    assert set(heads) <= set(FAMILY)
    assert re.findall(r"# TYPE ([a-z_]+) ", body.decode()) == heads
    # What is left out of a quiet broker: nothing is omitted, nobody has committed past an end, and it is too
    # young to say when a disk is full.
    rare = {
        "odradek_metrics_series_omitted",
        "odradek_consumergroup_offsets_past_end",
        "odradek_log_dir_seconds_until_full",
        # Of a node of a cluster: compat_tests/cluster/test_in_sync.py.
        "kafka_server_fetcherlagmetrics_consumerlag",
        # No share group has a queue: test_dead_letters.py.
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
        "odradek_sharegroup_deadletters_lost_total",
        # Only a worker has it: test_workers.py.
        "odradek_worker_info",
        # No client pushes: test_client_metrics_scrape.py.
        "kafka_client_*",
    }
    assert {family.name for family in FAMILIES} - set(heads) <= rare


def share(cluster, group, topic):
    """Reads the records of a topic for a share group: accepts the first, gives back the second."""
    configs = [AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    cluster.ask(ANY_NODE, IncrementalAlterConfigsRequest(resources=[resource]))
    beat = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=[topic]
    )
    assert cluster.ask(coordinator_of("group", group), beat).error_code == 0
    (described,) = ask(cluster, ANY_NODE, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics

    def fetch(epoch, *batches):
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=list(batches))
        request = share_fetch.ShareFetchRequest(
            group_id=group,
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1_000_000,
            max_records=100,
            batch_size=100,
            topics=[share_fetch.FetchTopic(topic_id=described.topic_id, partitions=[partition])],
        )
        return [one for topic in cluster.ask(1, request).responses for one in topic.partitions]

    # The state of the partition is read at the first request.
    (found,) = until(lambda: fetch(0), bool)
    taken = found.acquired_records
    assert [(one.first_offset, one.last_offset) for one in taken] == [(0, 2)]
    batches = [
        share_fetch.AcknowledgementBatch(first_offset=n, last_offset=n, acknowledge_types=[n + 1])
        for n in (0, 1)
    ]
    assert [one.acknowledge_error_code for one in fetch(1, *batches)] == [0]


def test_share_groups_tell_what_they_have_and_how_far_they_are_behind(port, cluster):
    create_topic(cluster, "shared", 1, {})
    produce(cluster, "shared", 0, [b"v"] * 3)
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    before = scraped(port)
    share(cluster, "parcels", "shared")
    after = scraped(port)
    labels = label_text(group="parcels", topic="shared", partition=0)
    assert after["odradek_sharegroup_lag", labels] == 2
    partition = "kafka_server_sharepartitionmetrics_"
    assert after[f"{partition}inflightmessagecount", labels] == 2
    assert after[f"{partition}acquisitionlocktimeout_total", labels] == 0
    grown = {
        kind: after[acknowledged, label_text(acktype=kind)] - before[acknowledged, label_text(acktype=kind)]
        for kind in ("Accept", "Release", "Reject", "Renew")
    }
    assert grown == {"Accept": 1, "Release": 1, "Reject": 0, "Renew": 0}
    for name in ("sharesessionscount", "sharepartitionscount"):
        key = f"kafka_server_sharesessioncache_{name}", None
        assert after[key] == before[key] + 1


def test_labels_are_escaped():
    assert label_text(topic='a"b\\c\nd') == '{topic="a\\"b\\\\c\\nd"}'


def test_a_metric_that_is_not_in_the_table_is_not_told():
    with pytest.raises(AssertionError, match="odradek_unknown is not in the table"):
        list(pieces([("odradek_unknown", "", 1)]))


def test_too_many_series_are_left_out_and_told(tmp_path):
    port = free_port()
    options = {"odradek.metrics.listen": f"127.0.0.1:{port}", "odradek.metrics.series.max": "60"}
    with (
        odradek.Broker(options=options, data_dir=str(tmp_path)) as running,
        Cluster(ClientSettings(running.bootstrap_servers)) as cluster,
    ):
        create_topic(cluster, "few", 4, {})
        assert ("kafka_log_log_size", label_text(topic="few", partition=3)) in scraped(port)
        create_topic(cluster, "many", 10, {})
        samples = scraped(port)
    assert ("kafka_log_log_size", label_text(topic="few", partition=3)) not in samples
    assert samples["odradek_metrics_series_omitted", label_text(family="kafka_log_log_size")] == 14
    assert samples["kafka_topic_partitions", label_text(topic="many")] == 10


def test_a_scrape_after_a_restart_has_the_logs_that_nobody_has_used_yet(tmp_path):
    port = free_port()
    options = {"odradek.metrics.listen": f"127.0.0.1:{port}"}
    with odradek.Broker(options=options, data_dir=str(tmp_path)) as running:
        with Cluster(ClientSettings(running.bootstrap_servers)) as cluster:
            create_topic(cluster, "quiet", 10, {})
            produce(cluster, "quiet", 7, [b"v"] * 3)
        running.restart()
        samples = scraped(port)
    ends = [
        samples["kafka_log_log_logendoffset", label_text(topic="quiet", partition=index)]
        for index in range(10)
    ]
    assert ends == [3 if index == 7 else 0 for index in range(10)]


# HTTP -------------------------------------------------------------------------------------------------


def test_health_and_details(port, broker):
    assert get(port, "/health/live")[1] == b"live\n"
    answer, body = get(port, "/health/ready")
    assert (answer.status, body) == (200, b"ready\n")
    answer, body = get(port, "/admin")
    assert answer.getheader("Content-Type") == "application/json"
    assert b'"ready": true' in body


def observed(*, failed=0, groups=None, transactions=None, fenced=False):
    """A broker, as far as readiness is concerned; `groups` and `transactions`: whether they are loading."""

    def part(is_loading):
        coordinator = Lazy(lambda: SimpleNamespace(is_loading=is_loading))
        if is_loading is not None:
            coordinator()
        return coordinator

    directories = ["one", "two"]
    return SimpleNamespace(
        node_id=1,
        store=SimpleNamespace(
            directories=directories,
            failing_disks=SimpleNamespace(failures=dict.fromkeys(directories[:failed], "it has failed")),
        ),
        coordinators=SimpleNamespace(groups=part(groups), transactions=part(transactions)),
        cluster_view=SimpleNamespace(brokers={} if fenced else {1: None}),
    )


@pytest.mark.parametrize(
    ("state", "reasons"),
    [
        ({"failed": 1, "groups": False, "transactions": False}, []),
        ({"failed": 2}, ["no data directory can be used"]),
        ({"groups": True, "transactions": False}, ["groups are being loaded"]),
        ({"groups": False, "transactions": True}, ["transactions are being loaded"]),
        ({"fenced": True}, ["the controllers have fenced this broker"]),
    ],
)
def test_each_reason_not_to_be_ready_is_told(port, broker, monkeypatch, state, reasons):
    found = reasons_not_ready(observed(**state))
    assert found == reasons
    monkeypatch.setattr(endpoint, "reasons_not_ready", lambda server: found)
    answer, body = get(port, "/health/ready")
    told = "".join(f"{one}\n" for one in reasons)
    assert (answer.status, body.decode()) == ((503, told) if reasons else (200, "ready\n"))


def test_head_has_the_length_and_no_body(port, broker):
    answer, body = get(port, "/health/live", "HEAD")
    assert (answer.status, answer.getheader("Content-Length"), body) == (200, "5", b"")


def test_a_large_page_is_compressed_for_those_who_take_it(port, broker):
    answer, body = get(port, "/metrics", **{"Accept-Encoding": "gzip"})
    assert answer.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(body).startswith(b"# HELP ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("GET", "/", 404), ("GET", "/metrics?x=1", 200), ("GET", "/../etc", 404)],
)
def test_other_requests_are_refused_by_their_status(port, broker, method, path, status):
    assert get(port, path, method)[0].status == status


def raw(port, request):
    with socket.create_connection(("127.0.0.1", port), 10) as connected:
        connected.sendall(request)
        connected.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connected.recv(65536):
            answer += more
        return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"GET /health/live HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", b"431"),
    ],
)
def test_a_request_that_is_none_is_answered_and_closed(port, broker, request_bytes, status):
    answer = raw(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    ("limit", "sent"), [("IDLE_SECONDS_MAX", b""), ("REQUEST_SECONDS_MAX", b"GET /health/live HTTP/1.1\r\n")]
)
def test_a_request_that_does_not_end_is_given_up(port, broker, monkeypatch, limit, sent):
    monkeypatch.setattr(http_server, limit, 0.05)
    with socket.create_connection(("127.0.0.1", port), 10) as connected:
        connected.sendall(sent)
        answer = b""
        while more := connected.recv(65536):
            answer += more
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert get(port, "/health/live")[0].status == 200


def test_requests_follow_one_another_on_a_connection(port, broker):
    answer = raw(port, b"GET /health/live HTTP/1.1\r\n\r\n" * 3)
    assert answer.count(b"live\n") == 3
    assert raw(port, b"GET /health/live HTTP/1.0\r\n\r\n" * 3).count(b"live\n") == 1


def test_more_connections_than_the_limit_are_told_so(port, broker):
    with contextlib.ExitStack() as stack:
        for _ in range(32):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            stack.callback(connection.close)
            connection.request("GET", "/health/live")
            assert connection.getresponse().read() == b"live\n"
        assert raw(port, b"").startswith(b"HTTP/1.1 503")
    deadline = time.monotonic() + 10
    while get(port, "/health/live")[0].status != 200:
        assert time.monotonic() < deadline


def test_a_port_that_is_taken_is_told_at_the_start(broker, tmp_path):
    taken = {"odradek.metrics.listen": f"127.0.0.1:{broker.port}"}
    with (
        pytest.raises(odradek.BrokerStartError, match=r"metrics.listen: nothing can listen at 127.0.0.1:"),
        odradek.Broker(options=taken, data_dir=str(tmp_path)),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "address"),
    [("9644", ("127.0.0.1", 9644)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:7", ("::1", 7)), (":7", ("", 7))],
)
def test_an_address_without_a_host_is_of_this_machine(text, address, tmp_path):
    assert load(data_dir=tmp_path, metrics=text).metrics_address == address


def test_a_wrong_address_is_told(tmp_path):
    with pytest.raises(ConfigError, match="takes HOST:PORT"):
        load(data_dir=tmp_path, metrics="metrics")


def test_the_page_of_the_documents_is_made_of_the_table():
    root = pathlib.Path(__file__).parents[2]
    assert (root / "docs" / "metrics.md").read_text() == page(), "python -m odradek.server.metrics.page"
