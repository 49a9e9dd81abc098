"""The settings of a broker as they are now: what is taken, what is refused, what follows a change."""

import pytest

from odradek.config import live as live_module
from odradek.config.broker_config import load
from odradek.config.live import LiveConfig
from odradek.config.option import READ_ONLY
from odradek.config.options import BROKER_OPTIONS, HONOURED, TOPIC_OPTIONS
from odradek.storage.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError


def live_config(**keywords):
    return LiveConfig(load(keywords=keywords), LogConfig.from_mapping)


@pytest.mark.parametrize(
    ("owner", "configs"),
    [
        ("1", {"log.cleaner.min.compaction.lag.ms": "9"}),
        ("", {"log.cleaner.min.compaction.lag.ms": "9"}),
        ("", {"log.retention.ms": "0"}),
        ("", {"num.partitions": "2"}),
    ],
)
def test_what_does_not_go_with_the_brokers_other_settings_is_refused(owner, configs):
    live = live_config(log_cleaner_max_compaction_lag_ms=8)
    with pytest.raises(KafkaError) as caught:
        live.check_broker(owner, configs)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_controller_checks_no_setting_of_another_broker_against_its_own_directories_and_settings(tmp_path):
    controller = live_config(log_dirs=str(tmp_path / "own"), num_io_threads=2)
    for configs in ({"cordoned.log.dirs": str(tmp_path / "other")}, {"num.io.threads": "16"}):
        controller.check_broker("2", configs)
        with pytest.raises(KafkaError):
            controller.check_broker("1", configs)


@pytest.mark.parametrize("configs", [{"num.io.threads": "many"}, {"num.partitions": "2"}, {"unknown": "1"}])
def test_a_controller_refuses_settings_that_no_broker_could_have(configs):
    with pytest.raises(KafkaError) as caught:
        live_config().check_broker("2", configs)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_topics_with_the_same_settings_share_them():
    live = live_config()
    one = live.log_config({"flush.ms": "5"})
    assert live.log_config({"flush.ms": "5"}) is one
    live.follow({None: {"log.retention.ms": "9"}})
    assert live.log_config({"flush.ms": "5"}).retention_ms == 9
    assert live.values["log.retention.ms"] == 9
    live.follow({2: {"log.retention.ms": "10"}})
    assert live.values["log.retention.ms"] is None


def test_ever_new_settings_of_topics_fill_no_memory(monkeypatch):
    monkeypatch.setattr(live_module, "LOG_CONFIGS_MAX", 3)
    made = []
    live = LiveConfig(load(), lambda values: made.append(values["flush.ms"]) or object())
    for number in (1, 2, 3, 4, 4, 2, 1, 1):
        live.log_config({"flush.ms": f"{number}"})
    assert made == [1, 2, 3, 4, 1]


def test_what_is_set_without_effect_is_named():
    live = live_config()
    live.follow({None: {"num.io.threads": "9", "log.retention.ms": "5"}, 1: {"num.network.threads": "5"}})
    assert live.without_effect == ("num.io.threads", "num.network.threads")


FOLLOWED = {
    "max.connections.per.ip.overrides",
    "cordoned.log.dirs",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    *("ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols"),
    "ssl.endpoint.identification.algorithm",
}
"""Read each time, or taken along by `Reconfiguration`, `Coordinators.follow` or `TlsReload`."""


def test_every_honoured_option_that_may_change_is_followed():
    of_topics = {name for option in TOPIC_OPTIONS.values() for name in option.synonyms}
    changeable = set()
    for name, option in BROKER_OPTIONS.items():
        if option.standing != HONOURED or option.dynamic == READ_ONLY:
            continue
        try:
            live_config().check_broker("1", {name: _some_value(option)})
        except KafkaError:
            continue
        changeable.add(name)
    assert changeable - of_topics == FOLLOWED


SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": "org.example.Login required;",
    "sasl.server.max.receive.size": "5000",
    "listener.name.x.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.x.plain.sasl.jaas.config": "org.example.Login required;",
    "listener.name.x.sasl.server.callback.handler.class": "org.example.Handler",
    "listener.name.x.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:/nowhere",
    "listener.name.x.connections.max.reauth.ms": "5",
    "listener.name.x.plain.connections.max.reauth.ms": "5",
    "connections.max.reauth.ms": "5",
}


@pytest.mark.parametrize("owner", ["1", ""])
@pytest.mark.parametrize("name", SASL)
def test_how_clients_authenticate_is_not_changed_at_run_time(owner, name):
    """A change that was taken and not used would be relied on: a revoked password, for example."""
    with pytest.raises(KafkaError, match="restart") as caught:
        live_config().check_broker(owner, {name: SASL[name]})
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert name in caught.value.message
    assert SASL[name] not in caught.value.message or len(SASL[name]) < 6


def test_what_an_older_version_has_stored_of_authentication_is_named_and_has_no_effect():
    live = live_config()
    live.follow({None: {"connections.max.reauth.ms": "5"}, 1: {**SASL, "log.retention.ms": "7"}})
    assert set(live.without_effect) == SASL.keys()
    assert live.values["sasl.server.max.receive.size"] == 524288
    assert not any(name in layer for layer in live.layers.texts for name in SASL)
    assert live.values["log.retention.ms"] == 7
    live.follow({1: {"sasl.enabled.mechanisms": "PLAIN", "log.retention.ms": "7"}})
    assert live.without_effect == ("sasl.enabled.mechanisms",)


def test_what_an_older_version_has_stored_of_authentication_hinders_no_other_change_and_may_be_deleted():
    live = live_config()
    name = "sasl.enabled.mechanisms"
    live.follow({1: SASL})
    live.check_broker("1", {**SASL, "log.retention.ms": "7"})
    live.check_broker("1", {name: SASL[name]})
    for owner, text in (("1", "GSSAPI"), ("", SASL[name])):
        with pytest.raises(KafkaError):
            live.check_broker(owner, {name: text})


def _some_value(option):
    return "5" if option.default_text is None else option.default_text


def test_what_the_controllers_of_a_cluster_have_stored_and_cannot_be_honoured_is_left_out_and_explained():
    live = live_config()
    live.follow(
        {
            None: {"no.such.option": "1", "log.retention.ms": "5"},
            1: {
                "log.segment.bytes": "many",
                "listener.name.x.max.connections": "-1",
                "principal.builder.class": "org.example.Principals",
            },
        }
    )
    assert live.values["log.retention.ms"] == 5
    assert live.values["log.segment.bytes"] == BROKER_OPTIONS["log.segment.bytes"].default_value
    told = "\n".join(live.refused)
    for part in (
        "no option 'no.such.option'",
        "principal.builder.class is known but not built yet",
        "log.segment.bytes must be a whole number",
        "listener.name.x.max.connections must be at least",
    ):
        assert part in told
    live.follow({})
    assert not live.refused


def test_settings_that_do_not_go_together_change_nothing_and_are_explained():
    live = live_config()
    live.follow({None: {"log.retention.ms": "5"}})
    live.follow({None: {"log.retention.ms": "0", "log.segment.bytes": "2000000"}})
    assert live.values["log.retention.ms"] == 5
    assert live.values["log.segment.bytes"] == BROKER_OPTIONS["log.segment.bytes"].default_value
    (sentence,) = live.refused
    assert "log.retention.ms must not be 0" in sentence


def test_a_topics_setting_that_cannot_be_honoured_leaves_the_others():
    config = live_config().log_config({"remote.storage.enable": "true", "retention.ms": "7", "nonsense": "1"})
    assert config.retention_ms == 7
