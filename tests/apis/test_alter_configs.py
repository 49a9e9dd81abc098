"""AlterConfigs and IncrementalAlterConfigs: what they change, what they refuse, and how they say so."""

import pytest

from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_configs, incremental_alter_configs
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def whole(kind, name, **configs):
    """A resource of AlterConfigs; settings with underscores for dots."""
    return alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def partly(kind, name, *operations):
    """A resource of IncrementalAlterConfigs; operations are (name, kind, value)."""
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in operations
        ],
    )


def alter(node, *resources, version=None, validate_only=False):
    request = alter_configs.AlterConfigsRequest
    if isinstance(resources[0], incremental_alter_configs.AlterConfigsResource):
        request = incremental_alter_configs.IncrementalAlterConfigsRequest
    return node.ask(request(resources=list(resources), validate_only=validate_only), version).responses


def code_of(node, resource, **options):
    (answer,) = alter(node, resource, **options)
    assert (answer.error_message is None) is (answer.error_code == 0)
    assert (answer.resource_type, answer.resource_name) == (resource.resource_type, resource.resource_name)
    return ErrorCode(answer.error_code).name


def described(node, kind, name, *settings):
    """(value, source) of each setting."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(settings)
    )
    (result,) = node.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {one.name: (one.value, one.config_source) for one in result.configs}


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_says_all_settings_that_a_topic_shall_have(node, version):
    node.create("t", retention_ms=1000, segment_ms=2000)
    assert code_of(node, whole(TOPIC, "t", retention_ms="5", flush_ms="7"), version=version) == "NONE"
    assert node.machine.view.topic("t").configs == {"retention.ms": "5", "flush.ms": "7"}
    assert (node.partition("t").config.retention_ms, node.partition("t").config.flush_ms) == (5, 7)
    assert described(node, TOPIC, "t", "retention.ms", "segment.ms") == {
        "retention.ms": ("5", 1),
        "segment.ms": ("604800000", 5),
    }
    assert code_of(node, whole(TOPIC, "t"), version=version) == "NONE"
    assert node.machine.view.topic("t").configs == {}


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_says_what_is_to_be_different(node, version):
    node.create("t", retention_ms=1000, segment_ms=2000)
    operations = (
        ("retention.ms", SET, "5"),
        ("segment.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert code_of(node, partly(TOPIC, "t", *operations), version=version) == "NONE"
    assert node.machine.view.topic("t").configs == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert node.partition("t").config.is_compacted
    subtract = partly(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert code_of(node, subtract, version=version) == "NONE"
    assert node.partition("t").config.cleanup_policy == {"compact"}


def test_validating_only_judges_and_changes_nothing(node):
    node.create("t", retention_ms=1000)
    for resource, code in (
        (whole(TOPIC, "t", retention_ms="5"), "NONE"),
        (whole(TOPIC, "t", retention_ms="soon"), "INVALID_CONFIG"),
        (partly(TOPIC, "t", ("retention.ms", DELETE, None)), "NONE"),
        (partly(BROKER, "", ("log.retention.ms", SET, "5")), "NONE"),
        (partly(BROKER, "", ("num.partitions", SET, "5")), "INVALID_REQUEST"),
    ):
        assert code_of(node, resource, validate_only=True) == code
    assert node.machine.view.topic("t").configs == {"retention.ms": "1000"}
    assert node.machine.view.broker_configs == {}


def test_a_broker_and_all_brokers_have_settings(node):
    node.create("t")
    assert code_of(node, partly(BROKER, "", ("log.retention.ms", SET, "5000"))) == "NONE"
    assert described(node, TOPIC, "t", "retention.ms") == {"retention.ms": ("5000", 3)}
    assert described(node, BROKER, "", "log.retention.ms") == {"log.retention.ms": ("5000", 3)}
    assert code_of(node, whole(BROKER, "1", log_retention_ms="6000")) == "NONE"
    assert described(node, TOPIC, "t", "retention.ms") == {"retention.ms": ("6000", 2)}
    assert described(node, BROKER, "1", "log.retention.ms") == {"log.retention.ms": ("6000", 2)}
    assert code_of(node, partly(BROKER, "1", ("log.retention.ms", DELETE, None))) == "NONE"
    assert described(node, BROKER, "1", "log.retention.ms") == {"log.retention.ms": ("5000", 3)}
    policy = partly(BROKER, "1", ("log.cleanup.policy", APPEND, "compact"))
    assert code_of(node, policy) == "NONE"
    assert described(node, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": ("delete,compact", 2)}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (whole(TOPIC, "t", retention_ms="soon"), "INVALID_CONFIG"),
        (whole(TOPIC, "t", no_such="1"), "INVALID_CONFIG"),
        (whole(TOPIC, "t", retention_ms=None), "INVALID_REQUEST"),
        (whole(TOPIC, "none", retention_ms="1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (whole(TOPIC, "none", retention_ms="soon"), "INVALID_CONFIG"),
        (whole(TOPIC, "no good"), "INVALID_TOPIC_EXCEPTION"),
        (whole(TOPIC, ""), "INVALID_REQUEST"),
        (whole(TOPIC, "t", min_compaction_lag_ms="9", max_compaction_lag_ms="8"), "INVALID_CONFIG"),
        (whole(BROKER, "1", num_partitions="3"), "INVALID_REQUEST"),
        (whole(BROKER, "1", log_retention_ms="soon"), "INVALID_REQUEST"),
        (whole(BROKER, "1", no_such="1"), "INVALID_REQUEST"),
        (whole(BROKER, "1", log_retention_ms=None), "INVALID_REQUEST"),
        (whole(BROKER, "2", log_retention_ms="1"), "INVALID_REQUEST"),
        (whole(BROKER, "one"), "INVALID_REQUEST"),
        (whole(BROKER, "", listeners="PLAINTEXT://:1"), "INVALID_REQUEST"),
        (whole(LOGGER, "1", root="INFO"), "INVALID_REQUEST"),
        (whole(CLIENT_METRICS, "m"), "NONE"),
        (whole(CLIENT_METRICS, "m", interval_ms="5000"), "NONE"),
        (whole(CLIENT_METRICS, "m", interval_ms="5"), "INVALID_REQUEST"),
        (whole(CLIENT_METRICS, "", interval_ms="5000"), "INVALID_REQUEST"),
        (partly(CLIENT_METRICS, "m", ("metrics", SET, "*"), ("interval.ms", SET, "100")), "NONE"),
        (partly(CLIENT_METRICS, "m", ("metrics", APPEND, "org.a")), "INVALID_CONFIG"),
        (partly(CLIENT_METRICS, "m", ("metrics", DELETE, None)), "NONE"),
        (partly(CLIENT_METRICS, "m", ("match", SET, "client_id")), "INVALID_CONFIG"),
        (partly(CLIENT_METRICS, "m", ("nonsense", SET, "1")), "INVALID_REQUEST"),
        (whole(GROUP, "g", consumer_session_timeout_ms="50000"), "NONE"),
        (whole(GROUP, "", consumer_session_timeout_ms="50000"), "INVALID_REQUEST"),
        (whole(GROUP, "g", consumer_session_timeout_ms=None), "INVALID_REQUEST"),
        (whole(GROUP, "g", consumer_session_timeout_ms="soon"), "INVALID_CONFIG"),
        (whole(GROUP, "g", consumer_session_timeout_ms="44999"), "INVALID_CONFIG"),
        (whole(GROUP, "g", consumer_session_timeout_ms="60001"), "INVALID_CONFIG"),
        (whole(GROUP, "g", streams_num_standby_replicas="3"), "INVALID_CONFIG"),
        (whole(GROUP, "g", share_session_timeout_ms="60001"), "INVALID_CONFIG"),
        (whole(GROUP, "g", share_session_timeout_ms="45000"), "NONE"),
        (whole(GROUP, "g", retention_ms="1"), "INVALID_CONFIG"),
        (whole(0, "x"), "INVALID_REQUEST"),
        (whole(99, "x"), "INVALID_REQUEST"),
        (partly(TOPIC, "t", ("retention.ms", SET, None)), "INVALID_REQUEST"),
        (partly(TOPIC, "t", ("cleanup.policy", APPEND, None)), "INVALID_REQUEST"),
        (partly(TOPIC, "t", ("retention.ms", APPEND, "1")), "INVALID_CONFIG"),
        (partly(TOPIC, "none", ("retention.ms", APPEND, "1")), "INVALID_CONFIG"),
        (partly(TOPIC, "t", ("cleanup.policy", APPEND, "shred")), "INVALID_CONFIG"),
        (partly(TOPIC, "t", ("no.such", DELETE, None)), "NONE"),
        (partly(TOPIC, "none", ("retention.ms", DELETE, None)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (partly(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "1")), "INVALID_REQUEST"),
        (partly(TOPIC, "t", ("retention.ms", 4, "1")), "INVALID_REQUEST"),
        (partly(TOPIC, "t", ("retention.ms", -1, "1")), "INVALID_REQUEST"),
        (partly(BROKER, "1", ("log.retention.ms", APPEND, "1")), "INVALID_CONFIG"),
        (partly(BROKER, "1", ("num.partitions", DELETE, None)), "NONE"),
        (partly(LOGGER, "1", ("root", SET, "INFO")), "INVALID_REQUEST"),
        (partly(GROUP, "g", ("consumer.heartbeat.interval.ms", APPEND, "1")), "INVALID_CONFIG"),
        (partly(GROUP, "g", ("consumer.heartbeat.interval.ms", DELETE, None)), "NONE"),
        (partly(GROUP, "g", ("no.such", DELETE, None)), "NONE"),
        (partly(GROUP, "", ("consumer.heartbeat.interval.ms", DELETE, None)), "INVALID_REQUEST"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(node, resource, code):
    node.create("t", retention_ms=1000)
    assert code_of(node, resource) == code
    assert node.machine.view.topic("t").configs == {"retention.ms": "1000"}


def test_a_group_has_settings_of_its_own_whether_it_exists_or_not(node):
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    resource = partly(GROUP, "g/1", (session, SET, "50000"), (heartbeat, SET, " 6000 "))
    assert code_of(node, resource, validate_only=True) == "NONE"
    assert node.machine.view.group_configs == {}
    assert code_of(node, resource) == "NONE"
    assert described(node, GROUP, "g/1", session, heartbeat) == {
        session: ("50000", 8),
        heartbeat: ("6000", 8),
    }
    assert described(node, GROUP, "other", session) == {session: ("45000", 5)}
    assert code_of(node, partly(GROUP, "g/1", (session, DELETE, None))) == "NONE"
    assert node.machine.view.group_configs == {"g/1": {heartbeat: " 6000 "}}
    assert code_of(node, whole(GROUP, "g/1")) == "NONE"
    assert node.machine.view.group_configs == {}


def test_a_group_cannot_have_a_session_that_ends_before_the_next_heartbeat(make_node):
    node = make_node(
        configs={
            "group.streams.min.session.timeout.ms": "6000",
            "group.streams.heartbeat.interval.ms": "7000",
        }
    )
    (answer,) = alter(node, partly(GROUP, "g", ("streams.session.timeout.ms", SET, "7000")))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert (
        answer.error_message
        == "streams.session.timeout.ms must be greater than streams.heartbeat.interval.ms"
    )
    assert code_of(node, partly(GROUP, "g", ("streams.session.timeout.ms", SET, "7001"))) == "NONE"
    refused = partly(GROUP, "g", ("streams.heartbeat.interval.ms", SET, "7001"))
    assert code_of(node, refused) == "INVALID_CONFIG"


def test_the_bounds_of_a_group_are_named_as_kafka_names_them(node):
    for value in ("44999", "60001"):
        (answer,) = alter(node, partly(GROUP, "g", ("consumer.session.timeout.ms", SET, value)))
        assert (
            answer.error_message
            == "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."
        )
    for name, value, bound in (
        ("streams.num.standby.replicas", "3", "less than or equal to 2"),
        ("streams.task.offset.interval.ms", "14999", "greater than or equal to 15000"),
    ):
        (answer,) = alter(node, partly(GROUP, "g", (name, SET, value)))
        assert answer.error_message == f"{name} must be {bound}"


def test_of_a_resource_that_is_named_twice_nothing_is_changed_and_the_others_are(node):
    node.create("t")
    node.create("u")
    answers = alter(
        node,
        whole(TOPIC, "t", flush_ms="1"),
        whole(TOPIC, "u", flush_ms="2"),
        whole(TOPIC, "t", flush_ms="3"),
    )
    assert [(one.resource_name, one.error_code) for one in answers] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert node.machine.view.topic("t").configs == {}
    assert node.partition("u").config.flush_ms == 2


def test_one_bad_setting_refuses_all_of_its_resource(node):
    node.create("t")
    answers = alter(
        node,
        partly(TOPIC, "t", ("flush.ms", SET, "1"), ("retention.ms", SET, "soon")),
        partly(BROKER, "", ("log.flush.interval.ms", SET, "2")),
    )
    assert [one.error_code for one in answers] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert node.partition("t").config.flush_ms > 2


def test_a_store_that_fails_is_told_for_each_resource_that_was_to_be_changed(node):
    node.create("t")
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    answers = alter(node, whole(TOPIC, "t", flush_ms="1"), whole(TOPIC, "t2", flush_ms=None))
    assert [one.error_code for one in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REQUEST]
    assert node.machine.view.topic("t").configs == {}


def test_nothing_asked_is_nothing_answered(node):
    request = alter_configs.AlterConfigsRequest(resources=[], validate_only=False)
    assert node.ask(request).responses == []
