"""What one group works by: its own settings, the broker's, and the broker's bounds."""

import dataclasses
from itertools import repeat

from odradek.config.option import HONOURED
from odradek.config.options import BROKER_OPTIONS, GROUP_OPTIONS
from odradek.coordinator.groups.settings import CACHED_CONFIGS_MAX, GroupConfig, GroupSettings


def test_the_defaults_are_those_of_the_options():
    settings = GroupSettings()
    named = {field.name: field.name.replace("_", ".") for field in dataclasses.fields(settings)}
    read = {field: name for field, name in named.items() if name in BROKER_OPTIONS}
    assert (
        sum(name.startswith(("group.consumer.", "group.share.", "group.streams.")) for name in read.values())
        == 52
    )
    for field, name in read.items():
        value = getattr(settings, field)
        expected = BROKER_OPTIONS[name].default_value
        assert value == (set(expected) if isinstance(value, frozenset) else expected), name


def test_every_honoured_group_option_is_a_field():
    honoured = {name for name, option in GROUP_OPTIONS.items() if option.standing == HONOURED}
    fields = {field.name.replace("_", ".") for field in dataclasses.fields(GroupConfig) if field.init}
    assert fields == honoured


def test_a_group_without_settings_has_the_brokers():
    settings = GroupSettings(group_consumer_session_timeout_ms=50_000)
    config = settings.of_group("g")
    assert config.consumer_session_timeout_ms == 50_000
    assert config.consumer_heartbeat_interval_ms == 5_000
    assert config.streams_initial_rebalance_delay_ms == 3_000
    assert settings.of_group("h") is config


def test_a_group_has_its_own_settings_and_for_the_rest_the_brokers():
    settings = GroupSettings(group_configs={"g": {"consumer.session.timeout.ms": " 50000 "}})
    assert settings.of_group("g").consumer_session_timeout_ms == 50_000
    assert settings.of_group("g").consumer_heartbeat_interval_ms == 5_000
    assert settings.of_group("h").consumer_session_timeout_ms == 45_000
    assert settings.of_group("g") is settings.of_group("g")


def test_a_bound_that_was_moved_since_counts():
    own = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "5000",
        "streams.num.standby.replicas": "2",
        "streams.initial.rebalance.delay.ms": "0",
    }
    settings = GroupSettings(
        group_configs={"g": own},
        group_consumer_max_session_timeout_ms=55_000,
        group_consumer_min_heartbeat_interval_ms=7_000,
        group_streams_max_standby_replicas=1,
    )
    config = settings.of_group("g")
    assert config.consumer_session_timeout_ms == 55_000
    assert config.consumer_heartbeat_interval_ms == 7_000
    assert config.streams_num_standby_replicas == 1
    assert config.streams_initial_rebalance_delay_ms == 0


def test_what_is_changed_in_place_counts_at_the_next_use():
    settings = GroupSettings()
    assert settings.of_group("g").consumer_assignment_interval_ms == 1_000
    settings.group_consumer_assignment_interval_ms = 5
    assert settings.of_group("g").consumer_assignment_interval_ms == 5
    settings.group_configs = {"g": {"consumer.assignment.interval.ms": "7"}}
    assert settings.of_group("g").consumer_assignment_interval_ms == 7
    settings.group_configs = {}
    assert settings.of_group("g").consumer_assignment_interval_ms == 5


def test_share_settings_are_passed_over():
    settings = GroupSettings(group_configs={"g": {"share.session.timeout.ms": "45000"}})
    assert settings.of_group("g") == settings.of_group("h")


def test_what_is_remembered_of_many_groups_is_bounded():
    names = [str(number) for number in range(CACHED_CONFIGS_MAX + 10)]
    own = {"consumer.assignment.interval.ms": "7"}
    settings = GroupSettings(group_configs=dict(zip(names, repeat(own))))
    assert {settings.of_group(name).consumer_assignment_interval_ms for name in names} == {7}
    assert len(settings._configs) <= CACHED_CONFIGS_MAX


def test_a_type_of_groups_needs_its_feature_and_its_protocol():
    settings = GroupSettings()
    assert settings.serves_consumer_groups
    assert settings.serves_streams_groups
    settings.group_version = 0
    settings.group_coordinator_rebalance_protocols = frozenset({"classic", "consumer"})
    assert not settings.serves_consumer_groups
    assert not settings.serves_streams_groups
