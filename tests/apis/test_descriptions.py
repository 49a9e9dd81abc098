"""DescribeConfigs, DescribeLogDirs, InitProducerId: what the node tells of itself, and the ids it gives."""

import logging

import pytest

from odradek.coordinator.cluster.changes import ClientMetricsOwner, GroupOwner
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.metadata_records import ProducerIdsRecord

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def describe(node, kind, name, keys=None, version=4, **options):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return node.ask(DescribeConfigsRequest(resources=[resource], **options), version).results[0]


def entries(result):
    assert result.error_code == ErrorCode.NONE
    return {one.name: one for one in result.configs}


@pytest.mark.parametrize("version", range(5))
def test_a_topics_settings_are_described_in_every_version(node, version):
    node.create("t", retention_ms=1000)
    configs = entries(describe(node, TOPIC, "t", version=version))
    own, default = configs["retention.ms"], configs["segment.bytes"]
    assert (own.value, own.read_only, own.is_sensitive) == ("1000", False, False)
    if version == 0:
        assert (own.is_default, default.is_default) == (False, False)  # as Kafka 3.9, which never fills it
    else:
        assert (own.config_source, default.config_source) == (1, 5)
    assert own.synonyms == []
    assert own.documentation is None if version >= 3 else own.documentation in (None, "")


def test_synonyms_and_documentation_come_when_asked_for(make_node):
    node = make_node(configs={"log.retention.ms": "5000"})
    node.create("t", retention_ms=1000)
    result = describe(node, TOPIC, "t", ["retention.ms"], include_synonyms=True, include_documentation=True)
    (config,) = result.configs
    assert [(one.name, one.value, one.source) for one in config.synonyms][:2] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "5000", 4),
    ]
    assert config.documentation
    assert config.config_type == 5


def test_only_what_is_asked_for_is_told_and_an_empty_list_asks_for_all(node):
    node.create("t")
    assert list(entries(describe(node, TOPIC, "t", ["retention.ms", "unheard.of"]))) == ["retention.ms"]
    assert len(describe(node, TOPIC, "t", []).configs) == len(describe(node, TOPIC, "t").configs) > 25


def test_a_subscription_to_client_metrics_has_kafkas_defaults(node):
    told = describe(node, CLIENT_METRICS, "any", include_synonyms=True)
    assert [(one.name, one.value, one.config_source) for one in told.configs] == [
        ("interval.ms", "300000", 5),
        ("match", "", 5),
        ("metrics", "", 5),
    ]
    assert list(entries(describe(node, CLIENT_METRICS, "any", ["match", "x"]))) == ["match"]


def test_a_subscription_to_client_metrics_is_described_by_what_it_has(node):
    node.set_configs(ClientMetricsOwner("m"), {"interval.ms": "500"})
    told = entries(describe(node, CLIENT_METRICS, "m", include_synonyms=True))["interval.ms"]
    assert (told.value, told.config_source) == ("500", 7)


@pytest.mark.parametrize(
    ("level", "name"), [(5, "TRACE"), (10, "DEBUG"), (20, "INFO"), (30, "WARN"), (40, "ERROR"), (50, "FATAL")]
)
def test_loggers_are_told_with_the_level_that_counts_for_them(node, level, name):
    above, below = logging.getLogger("told.above"), logging.getLogger("told.above.below")
    above.setLevel(level)
    told = entries(describe(node, LOGGER, "1"))
    assert (told["told.above"].value, told["told.above"].config_source) == (name, 6)
    assert told[below.name].value == name
    assert "root" in told
    assert list(entries(describe(node, LOGGER, "1", ["told.above", "none.such"]))) == ["told.above"]


def test_an_internal_option_is_told_of_a_broker_for_which_it_was_set(make_node):
    name = "log.initial.task.delay.ms"
    assert name not in entries(describe(make_node(), BROKER, "1"))
    assert entries(describe(make_node(configs={name: "7"}), BROKER, "1"))[name].value == "7"


def test_a_brokers_settings_come_from_its_start_and_its_overrides(make_node):
    node = make_node(configs={"num.partitions": "7"})
    node.set_configs(1, {"log.retention.ms": "9"})
    configs = entries(describe(node, BROKER, "1"))
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
    assert (configs["log.retention.ms"].value, configs["log.retention.ms"].config_source) == ("9", 2)
    assert entries(describe(node, BROKER, "")) == {}
    node.set_configs(None, {"log.retention.ms": "10"})
    assert list(entries(describe(node, BROKER, ""))) == ["log.retention.ms"]


def test_a_group_is_described_by_what_it_has_and_what_the_broker_has_for_it(make_node):
    node = make_node(configs={"group.consumer.heartbeat.interval.ms": "6000"})
    node.set_configs(GroupOwner("g"), {"consumer.session.timeout.ms": "50000"})
    configs = entries(describe(node, GROUP, "g", include_synonyms=True))
    assert len(configs) == 21
    told = {
        name: (one.value, [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms])
        for name, one in configs.items()
    }
    assert told["consumer.session.timeout.ms"] == (
        "50000",
        [
            ("consumer.session.timeout.ms", "50000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ],
    )
    assert told["consumer.heartbeat.interval.ms"] == (
        "6000",
        [
            ("group.consumer.heartbeat.interval.ms", "6000", 4),
            ("group.consumer.heartbeat.interval.ms", "5000", 5),
        ],
    )
    assert told["share.isolation.level"] == (
        "read_uncommitted",
        [("share.isolation.level", "read_uncommitted", 5)],
    )
    assert entries(describe(node, GROUP, "nobody")).keys() == configs.keys()
    assert not any(one.read_only or one.is_sensitive for one in configs.values())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here_is_refused(node, kind, name, code):
    result = describe(node, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert result.error_message


# Directories


@pytest.mark.parametrize("version", range(6))
def test_a_data_directory_tells_what_its_partitions_hold(node, version):
    node.create("t", 2)
    node.create("u")
    node.fill("t", [b"x" * 1000], index=1)
    (result,) = node.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (result.error_code, result.log_dir) == (0, node.store.directories[0])
    sizes = {
        (topic.name, one.partition_index): one.partition_size
        for topic in result.topics
        for one in topic.partitions
    }
    assert set(sizes) == {("t", 0), ("t", 1), ("u", 0)}
    assert sizes["t", 1] == node.partition("t", 1).size_bytes > 1000
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0
    else:
        assert result.total_bytes == -1


def test_only_the_partitions_asked_for_are_told(node):
    node.create("t", 2)
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1, 5])])
    (result,) = node.ask(asked).results
    (topic,) = result.topics
    assert [one.partition_index for one in topic.partitions] == [1]


def test_a_directory_that_is_gone_has_an_error(node):
    node.store.directories = ["/nowhere/at/all"]
    (result,) = node.ask(DescribeLogDirsRequest(topics=None)).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_a_directory_whose_files_cannot_be_read_has_an_error(node, monkeypatch):
    node.create("t")
    node.store.places.by_key["t", 0].partition = None  # not loaded: its size is asked of the disk

    def fail(path):
        raise OSError("the disk does not answer")

    monkeypatch.setattr(node.store.disk, "list", fail)
    (result,) = node.ask(DescribeLogDirsRequest(topics=None)).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


# Producer ids


def init(node, version=5, **fields):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, **fields)
    return node.ask(request, version)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(node, version):
    ids = [init(node, version).producer_id for _ in range(3)]
    assert len(set(ids)) == 3
    assert init(node, version).producer_epoch == 0


def test_ids_come_in_blocks_that_are_stored_before_they_are_given(node):
    blocks = [init(node).producer_id // 1000 for _ in range(1001)]
    assert blocks == [0] * 1000 + [1]
    stored = [one for one in node.metadata.records if isinstance(one, ProducerIdsRecord)]
    assert [one.next_producer_id for one in stored] == [1000, 2000]


def test_a_producer_that_asks_again_gets_a_new_id(node):
    first = init(node)
    again = init(node, producer_id=first.producer_id, producer_epoch=0)
    assert again.producer_id != first.producer_id
    assert again.producer_epoch == 0


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_half_an_identity_is_refused(node, fields):
    answer = init(node, **fields)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert answer.producer_epoch == -1


def test_a_failing_store_gives_no_ids(node):
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert init(node).error_code == ErrorCode.KAFKA_STORAGE_ERROR
