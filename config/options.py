"""Broker, topic and group options: look-up, parsing, effective values, entries of DescribeConfigs.

A broker option's value comes from four layers, the strongest first: set for this broker at run time, set for
all brokers at run time, set at the start (file, environment, command line), default. A topic option comes
from the topic itself, else from its broker synonyms (`retention.ms` from `log.retention.ms`, `.minutes` or
`.hours`); a group option from the group itself, within the bounds that the broker sets, else from its broker
synonym. Sources: Kafka's ConfigDef, DynamicBrokerConfig, ServerTopicConfigSynonyms, GroupConfig and
ConfigHelper, release 4.3.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from odradek.config import option_list
from odradek.config.option import (
    ACCEPTED,
    AT_CONTROLLER,
    IN_CLUSTER,
    LIST,
    OF_CLUSTER,
    PER_BROKER,
    READ_ONLY,
    REFUSED,
    STRING,
    Option,
)
from odradek.config.option import (
    HONOURED as HONOURED,
)
from odradek.config.roles import Role
from odradek.config.secret import Secret
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues, TopicValues


class BrokerOptions(dict[str, Option]):
    """The options of a broker by name. Some may be set for single listeners, under longer names."""

    def __init__(self, options: Iterable[Option]) -> None:
        super().__init__((option.name, option) for option in options)
        self.defaults = {name: option.default_value for name, option in self.items()}

    def __add__(self, more: Iterable[Option]) -> "BrokerOptions":
        """These options and `more`, which have other names."""
        more = tuple(more)
        assert self.keys().isdisjoint(option.name for option in more)
        return BrokerOptions([*self.values(), *more])

    def of_role(self, role: Role) -> "BrokerOptions":
        """The options for a node of this role."""
        return self if role is Role.ALONE else BrokerOptions(of_role(role, self).values())


BROKER_OPTIONS = BrokerOptions(option_list.BROKER)
TOPIC_OPTIONS: dict[str, Option] = {option.name: option for option in option_list.TOPIC}
GROUP_OPTIONS: dict[str, Option] = {option.name: option for option in option_list.GROUP}
CLIENT_METRICS_OPTIONS: dict[str, Option] = {option.name: option for option in option_list.CLIENT_METRICS}


def of_role(role: Role, options: Mapping[str, Option]) -> dict[str, Option]:
    """The options for a node of this role."""
    return {name: option.of_role(role) for name, option in options.items()}


# Sources of a value, by their numbers in DescribeConfigs responses (Kafka:
# DescribeConfigsResponse.ConfigSource).
FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_START, FROM_DEFAULT = range(1, 6)
FROM_LOGGER, FROM_CLIENT_METRICS, FROM_GROUP = range(6, 9)

LOG_LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
"""Levels of Python's logging by Kafka's names; Python has no name for the last one."""

# Broker options with the same meaning, the strongest first (Kafka: DynamicBrokerConfig.brokerConfigSynonyms).
_SAME = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_BROKER_SYNONYMS = {name: names for names in _SAME for name in names}
# The scheduler's interval has a meaning of its own; it only replaces a missing flush interval.
del _BROKER_SYNONYMS["log.flush.scheduler.interval.ms"]

# Settings of single listeners, `listener.name.NAME.OPTION`, and for some options `...NAME.MECHANISM.OPTION`
# (Kafka: DynamicBrokerConfig). The ones that are used here, and the ones that are refused.
_OF_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_OF_MECHANISMS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    *(option.name for option in option_list.BROKER if option.name.startswith("sasl.oauthbearer.")),
)
_OF_LISTENERS_OF_ALL_BROKERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_HONOURED_OF_LISTENERS = ("max.connections", "max.connection.creation.rate", "connections.max.reauth.ms")
_OF_LISTENERS_ONLY = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)
"""Refused for all listeners while a broker runs. At the start they may be set for all."""
# Kafka changes them at run time, without new listeners; here changes are not followed.
_FIXED_HERE = frozenset({"listeners", "listener.security.protocol.map"})

THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Numbers of threads; Kafka allows a change to at least half and at most double."""
_UNIT_MS = {"hours": 3_600_000, "minutes": 60_000}


class BrokerLayers(NamedTuple):
    """The texts set for a broker; an option without a text has its default."""

    broker: Mapping[str, str] = {}
    """At run time, for this broker."""
    all_brokers: Mapping[str, str] = {}
    """At run time, for all brokers."""
    start: Mapping[str, str] = {}
    """At start: file, environment, command line."""
    options: BrokerOptions = BROKER_OPTIONS
    """The options that the broker has."""

    @property
    def texts(self) -> tuple[Mapping[str, str], ...]:
        """The three layers, the strongest first."""
        return self[:3]


class ListenerParts(NamedTuple):
    """The parts of the name of a setting of a single listener, as they are written."""

    listener: str
    mechanism: str | None
    option: str
    """Any text: perhaps there is no such option."""


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class ConfigEntry:
    """One option in a DescribeConfigs response."""

    name: str
    value: str | None
    """None without a value, and always for a sensitive option."""
    source: int
    read_only: bool
    sensitive: bool
    synonyms: list[ConfigSynonym]
    """The sources of the value with a setting or default, the strongest first."""
    kind: int
    documentation: str


_WITHOUT_EFFECT = (ACCEPTED, IN_CLUSTER, OF_CLUSTER, AT_CONTROLLER)


def without_effect(names: Iterable[str], options: Mapping[str, Option]) -> tuple[str, ...]:
    """The settings among these names that are accepted without effect by a node with these options."""
    return tuple(name for name in names if _standing(name, options) in _WITHOUT_EFFECT)


def honoured(
    configs: Mapping[str, str], options: Mapping[str, Option]
) -> tuple[dict[str, str], dict[str, str]]:
    """The stored settings that a node with these options can use, and for each other name a sentence with the
    reason. Controllers of Kafka also store unknown settings, and those that are not built here."""
    taken, refused = {}, {}
    for name, text in configs.items():
        option = options.get(name)
        try:
            if option is not None:
                refusal = option.refusal_unless_built(option.parse(text))
            elif isinstance(options, BrokerOptions) and option_of_listener(name) is not None:
                refusal = None
                parse_of_listener(name, text)
            else:
                refusal = f"There is no option {name!r}."
        except ValueError as error:
            refusal = str(error)
        if refusal is None:
            taken[name] = hidden(name, text, options)
        else:
            refused[name] = refusal
    return taken, refused


def _standing(name: str, options: Mapping[str, Option]) -> str | None:
    if name in options:
        return options[name].standing
    option = option_of_listener(name) if isinstance(options, BrokerOptions) else None
    if option is None:
        return None
    if option.standing == REFUSED:
        return REFUSED
    is_followed = option.name in _HONOURED_OF_LISTENERS or option.name.startswith(("sasl.", "ssl."))
    return option.standing if is_followed else ACCEPTED


def hidden(name: str, text: str, options: Mapping[str, Option]) -> str:
    """The text of a setting: a `Secret` if it is a password, or may be one since nobody knows the option."""
    option = options.get(name) or option_of_listener(name)
    return Secret(text) if option is None or option.is_sensitive else text


def option_of_listener(name: str) -> Option | None:
    """The option that this name sets for a single listener; None for other names."""
    parts = parts_of_listener(name)
    return None if parts is None else BROKER_OPTIONS.get(parts.option)


def parts_of_listener(name: str) -> ListenerParts | None:
    """The parts of a name that sets something for a single listener; None for other names."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return None
    listener, rest = match.groups()
    for option in _OF_MECHANISMS:
        if rest.endswith(f".{option}"):
            return ListenerParts(listener, rest.removesuffix(f".{option}"), option)
    return ListenerParts(listener, None, rest)


def is_of_start(name: str) -> bool:
    """Whether a setting counts only at the start: how clients authenticate. Kafka takes some of them while it
    runs, for new listeners, of which there are none here. One that was taken and not used would be taken for
    granted: a password that is revoked, for example. And a client that may change settings could have the
    broker read files and addresses (CVE-2025-27817), or take unsigned tokens."""
    option = option_of_listener(name) or BROKER_OPTIONS.get(name)
    if option is not None and option.standing == ACCEPTED:
        return False  # nothing reads it, at the start either
    own = name if option is None else option.name
    return own.startswith("sasl.") or own == "connections.max.reauth.ms"


def values_of_listeners(layers: BrokerLayers, option: str) -> dict[str, Any]:
    """An option's values for single listeners, by their names in lower case."""
    values = {}
    for layer in (layers.start, layers.all_brokers, layers.broker):
        for name, text in layer.items():
            parts = parts_of_listener(name)
            if parts is not None and parts.mechanism is None and parts.option == option:
                values[parts.listener] = BROKER_OPTIONS[option].parse(text)
    return values


def parse_of_listener(name: str, text: str) -> Any:
    """The value of a setting of a single listener. ValueError: one sentence with the reason of the
    refusal."""
    option = option_of_listener(name)
    assert option is not None, name
    try:
        value = option.parse(text)
    except ValueError as error:
        raise ValueError(str(error).replace(option.name, name, 1)) from None
    if option.standing == REFUSED and (refusal := option.refusal_unless_built(value)):
        raise ValueError(refusal.replace(option.name, name, 1))
    return value


# --- Reading ---


def parse_topic_configs(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """The Python values of a topic's own settings, as in CreateTopics and AlterConfigs.

    Refuses with KafkaError(INVALID_CONFIG): an unknown name, an invalid text, a value that is not built yet.
    """
    return {name: _parse(name, text, TOPIC_OPTIONS, "topic") for name, text in configs.items()}


def check_topic_configs(configs: Mapping[str, str | None], defaults: "TopicValues") -> None:
    """Refuse with KafkaError(INVALID_CONFIG) a topic's own settings that contradict each other or
    `topic_defaults`, and all that `parse_topic_configs` refuses.
    """
    values = topic_values(configs, defaults)
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise _invalid(f"min.compaction.lag.ms ({low}) must not exceed max.compaction.lag.ms ({high}).")


def parse_group_configs(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """The Python values of a group's own settings.

    Refuses with KafkaError(INVALID_CONFIG): an unknown name, an invalid text, a value that is not built yet.
    """
    return {name: _parse(name, text, GROUP_OPTIONS, "group") for name, text in configs.items()}


def _check_bounds(name: str, value: int, at_least: int | None, at_most: int | None) -> None:
    """Sentences as of Kafka 4.4.0."""
    if (at_least is None or value >= at_least) and (at_most is None or value <= at_most):
        return
    if at_least is None:
        raise _invalid(f"{name} must be less than or equal to {at_most}")
    if at_most is None:
        raise _invalid(f"{name} must be greater than or equal to {at_least}")
    raise _invalid(f"{name} must be in the range {at_least} to {at_most} inclusive.")


def check_group_configs(configs: Mapping[str, str | None], values: "BrokerValues") -> None:
    """Refuse with KafkaError(INVALID_CONFIG) a group's own settings outside of the broker's bounds, a
    session that would end before the next heartbeat, and all that `parse_group_configs` refuses.
    """
    broker: Mapping[str, Any] = values
    own = parse_group_configs(configs)
    if own.get("errors.deadletterqueue.topic.name", "").startswith("__"):
        raise _invalid("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
    assignor, assignors = own.get("streams.assignor.name"), broker["group.streams.assignors"]
    if assignor is not None and assignor not in assignors:
        raise _invalid(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(assignors)}]."
        )
    for name, value in own.items():
        at_least, at_most = (None if one is None else broker[one] for one in GROUP_OPTIONS[name].bounds)
        _check_bounds(name, value, at_least, at_most)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in own or heartbeat in own) and (
            own.get(session, broker[f"group.{session}"]) <= own.get(heartbeat, broker[f"group.{heartbeat}"])
        ):
            raise _invalid(f"{session} must be greater than {heartbeat}")


def parse_broker_configs(
    configs: Mapping[str, str | None], *, for_all_brokers: bool, options: BrokerOptions = BROKER_OPTIONS
) -> dict[str, Any]:
    """The Python values of a broker's settings at run time; `for_all_brokers`: the settings of the whole
    cluster. Refuses with KafkaError(INVALID_REQUEST), where a topic gets INVALID_CONFIG (KAFKA-13609): all
    that `parse_topic_configs` refuses, an option that cannot change at run time, and one that cannot be set
    for all brokers. Stricter than Kafka, which keeps unknown settings for its plug-ins.
    """
    # All names with one of these errors are listed, before values are checked. The words are Kafka's: tools
    # and tests search for them.
    _refuse_all(
        "Cannot update these configs dynamically, they are read at the start: set them in the broker's file "
        "(or where its other options come from) and restart it",
        filter(is_of_start, configs),
    )
    fixed = [name for name in configs if _is_fixed(name, options)]
    _refuse_all("Cannot update these configs dynamically", fixed)
    _refuse_all(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        filter(_OF_LISTENERS_ONLY.__contains__, configs),
    )
    if for_all_brokers:
        of_one_broker = [name for name in configs if _is_of_one_broker(name, options)]
        _refuse_all(
            "Cannot update these configs at default cluster level, broker id must be specified", of_one_broker
        )
    values = {}
    for name, text in configs.items():
        try:
            values[name] = _parse(name, text, options, "broker")
        except KafkaError as error:
            raise _bad_request(error.message) from None
        if values[name] == 0 and _shuts_out_all(name):
            raise _bad_request(f"Invalid dynamic configuration: {name}=0 would let nobody in.")
    return values


def _shuts_out_all(name: str) -> bool:
    """Whether only a start may set 0, as in Kafka (ListenerConnectionQuota.validateReconfiguration)."""
    option = option_of_listener(name)
    return (name if option is None else option.name) in _HONOURED_OF_LISTENERS


def _is_fixed(name: str, options: BrokerOptions) -> bool:
    option = options.get(name)
    return name in _FIXED_HERE or (option is not None and option.dynamic == READ_ONLY)


def _is_of_one_broker(name: str, options: BrokerOptions) -> bool:
    option = option_of_listener(name)
    if option is not None:
        return option.name not in _OF_LISTENERS_OF_ALL_BROKERS
    return name in options and options[name].dynamic == PER_BROKER


def _refuse_all(what: str, names: Iterable[str]) -> None:
    listed = ", ".join(names)
    if listed:
        raise _bad_request(f"{what}: [{listed}]")


def _parse(name: str, text: str | None, options: Mapping[str, Option], what: str) -> Any:
    option = options.get(name)
    of_listener = (
        option is None and isinstance(options, BrokerOptions) and option_of_listener(name) is not None
    )
    if option is None and not of_listener:
        raise _invalid(f"Unknown {what} config name: {name}")
    if text is None:
        raise _invalid(f"{name} has no value; delete the setting to get its default.")
    try:
        if option is None:
            return parse_of_listener(name, text)
        value = option.parse(text)
    except ValueError as error:
        raise _invalid(str(error)) from None
    refusal = option.refusal_unless_built(value)
    if refusal is not None:
        raise _invalid(refusal)
    return value


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, sentence)


def _bad_request(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)


# --- Effective values ---


def broker_values(layers: BrokerLayers) -> "BrokerValues":
    """The value of every broker option. ValueError: a text is no valid value."""
    options = layers.options
    values = dict(options.defaults)
    for layer in (layers.start, layers.all_brokers, layers.broker):
        for name, text in layer.items():
            option = options.get(name)
            if option is not None:
                values[name] = option.parse(text)
    return cast("BrokerValues", values)


def topic_defaults(broker: "BrokerValues") -> "TopicValues":
    """The value of each topic option without a setting of the topic."""
    defaults = {
        name: _from_synonyms(option, broker) if option.synonyms else option.default_value
        for name, option in TOPIC_OPTIONS.items()
    }
    return cast("TopicValues", defaults)


def topic_values(configs: Mapping[str, str | None], defaults: "TopicValues") -> "TopicValues":
    """The value of every topic option of one topic, from its own settings and `topic_defaults`."""
    values = cast("TopicValues", {**defaults, **parse_topic_configs(configs)})
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


def _from_synonyms(option: Option, broker: Mapping[str, Any]) -> Any:
    for name in option.synonyms:
        value = broker[name]
        if value is None:
            continue
        unit = _UNIT_MS.get(name.rpartition(".")[2])
        if unit is not None:
            value *= unit
        # Any negative retention time means no limit (Kafka: KafkaConfig.logRetentionTimeMillis).
        return max(value, -1) if option.name == "retention.ms" else value
    return option.default_value


def own_group_value(option: Option, text: str, at_least: int | None, at_most: int | None) -> Any:
    """The value of a group's own setting. It was checked when it was set; if the broker's bounds have changed
    since, it is the nearest allowed value (Kafka: GroupConfig.evaluate).
    """
    value = option.parse(text)
    if at_least is not None and value < at_least:
        return at_least
    if at_most is not None and value > at_most:
        return at_most
    return value


def first_of_list(option: Option, value: Any) -> Any:
    """The value that the broker's option gives a group's: where that has one name of a list, the first."""
    return value[0] if isinstance(value, tuple) and option.kind != LIST else value


# --- DescribeConfigs ---


def _effective(layers: BrokerLayers) -> "BrokerValues":
    """The values that the broker uses; stored settings that it cannot use are left out."""
    broker, _ = honoured(layers.broker, layers.options)
    all_brokers, _ = honoured(layers.all_brokers, layers.options)
    return broker_values(layers._replace(broker=broker, all_brokers=all_brokers))


def describe_topic(
    configs: Mapping[str, str], layers: BrokerLayers, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The DescribeConfigs entries of a topic with these settings of its own; `names` None means every option.
    Synonyms are always filled in; the handler removes them unless they were requested.
    """
    own, refused = honoured(configs, TOPIC_OPTIONS)
    values: Mapping[str, Any] = {**topic_defaults(_effective(layers)), **parse_topic_configs(own)}
    entries = []
    for name in _wanted(names, TOPIC_OPTIONS, configs):
        option = TOPIC_OPTIONS[name]
        value = configs[name] if name in refused else option.text(values[name])
        synonyms = _synonyms(option.synonyms[0], layers) if option.synonyms else []
        if name in configs:
            synonyms.insert(0, ConfigSynonym(name, value, FROM_TOPIC))
        entries.append(_entry(option, value, synonyms, read_only=False))
    return entries


def describe_group(
    configs: Mapping[str, str], layers: BrokerLayers, names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The DescribeConfigs entries of a group with these settings of its own, whether the group exists or not.
    The value is the setting, even if the broker's bounds now change its effect.
    """
    broker: Mapping[str, Any] = _effective(layers)
    entries = []
    for name in _wanted(names, GROUP_OPTIONS):
        option = GROUP_OPTIONS[name]
        if option.synonyms:
            value = option.text(first_of_list(option, broker[option.synonyms[0]]))
            synonyms = _synonyms(option.synonyms[0], layers)
        else:
            value = option.default_text
            synonyms = [ConfigSynonym(name, value, FROM_DEFAULT)]
        if name in configs:
            value = option.text(option.parse(configs[name]))
            synonyms.insert(0, ConfigSynonym(name, value, FROM_GROUP))
        entries.append(_entry(option, value, synonyms, read_only=False))
    return entries


def describe_broker(layers: BrokerLayers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The DescribeConfigs entries of one broker: as in Kafka, internal options only if they were set at
    start, and settings of single listeners. Unknown names set at start are included, as sensitive.
    """
    values: Mapping[str, Any] = _effective(layers)
    entries = []
    for name in _wanted(names, layers.options, layers.start):
        option = layers.options[name]
        if option.unlisted and not any(name in layer for layer in layers.texts):
            continue
        value = None if option.is_sensitive else option.text(values[name])
        entries.append(_entry(option, value, _synonyms(name, layers), read_only=option.dynamic == READ_ONLY))
    if names is None:
        names = {**layers.start, **layers.all_brokers, **layers.broker}
    for name in names:
        if name in layers.options or not any(name in layer for layer in layers.texts):
            continue
        of_listener = option_of_listener(name)
        entries.append(
            _unknown_entry(name) if of_listener is None else _entry_of_listener(name, of_listener, layers)
        )
    return entries


def describe_all_brokers(layers: BrokerLayers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The DescribeConfigs entries of the broker named "": only settings of the run time for all brokers."""
    options = layers.options
    only = BrokerLayers(all_brokers=layers.all_brokers, options=options)
    wanted = layers.all_brokers if names is None else [name for name in names if name in layers.all_brokers]
    entries = []
    for name in _wanted(wanted, options):
        option = options[name]
        value = None if option.is_sensitive else layers.all_brokers[name]
        synonyms = [synonym for synonym in _synonyms(name, only) if synonym.source == FROM_ALL_BROKERS]
        entries.append(_entry(option, value, synonyms, read_only=option.dynamic == READ_ONLY))
    for name in wanted:
        of_listener = option_of_listener(name)
        if name not in options and of_listener is not None:
            entry = _entry_of_listener(name, of_listener, only)
            entry.synonyms = [one for one in entry.synonyms if one.source == FROM_ALL_BROKERS]
            entries.append(entry)
    return entries


def describe_client_metrics(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The DescribeConfigs entries of a subscription with these settings, whether it exists or not."""
    entries = []
    for name in _wanted(names, CLIENT_METRICS_OPTIONS):
        option = CLIENT_METRICS_OPTIONS[name]
        value = _as_kafka_writes_it(option, configs[name]) if name in configs else option.default_text
        synonyms = [ConfigSynonym(name, value, FROM_CLIENT_METRICS)] if name in configs else []
        entries.append(_entry(option, value, synonyms, read_only=False))
    return entries


def _as_kafka_writes_it(option: Option, text: str) -> str | None:
    """Controllers of a cluster may keep what is no value here."""
    try:
        return option.text(option.parse(text))
    except ValueError:
        return text


def describe_loggers(levels: Mapping[str, int], names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The DescribeConfigs entries of loggers with these levels (numbers of Python's logging)."""
    wanted = levels if names is None else [name for name in dict.fromkeys(names) if name in levels]
    return [
        ConfigEntry(name, _level_name(levels[name]), FROM_LOGGER, False, False, [], 0, "") for name in wanted
    ]


def _level_name(level: int) -> str:
    return next((name for name, least in LOG_LEVELS.items() if level >= least), "TRACE")


def _wanted(
    names: Iterable[str] | None, options: Mapping[str, Option], own: Container[str] = ()
) -> list[str]:
    """The options to describe: internal ones only if they are among the `own` settings, as in Kafka."""
    wanted = options if names is None else dict.fromkeys(names)
    return [name for name in wanted if name in options and (not options[name].internal or name in own)]


def _entry(
    option: Option, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else FROM_DEFAULT
    return ConfigEntry(
        option.name, value, source, read_only, option.is_sensitive, synonyms, option.kind, option.doc
    )


def _entry_of_listener(name: str, option: Option, layers: BrokerLayers) -> ConfigEntry:
    """Without a setting for the listener, the setting for all listeners counts. Kafka describes it as
    read-only, and nevertheless changes it.
    """
    synonyms = _synonyms_of((name, option.name) if name.endswith(f".{option.name}") else (name,), layers)
    value = None if option.is_sensitive else synonyms[0].value
    entry = _entry(option, value, synonyms, read_only=True)
    entry.name = name
    return entry


def _unknown_entry(name: str) -> ConfigEntry:
    """An unknown option, perhaps of a plug-in of Kafka: its value may be a secret (Kafka: maybeSensitive)."""
    synonyms = [ConfigSynonym(name, None, FROM_START)]
    return ConfigEntry(name, None, FROM_START, True, True, synonyms, STRING, "")


def _synonyms(name: str, layers: BrokerLayers) -> list[ConfigSynonym]:
    """The sources of a broker option's value, ordered by layer and then by name, as in Kafka."""
    return _synonyms_of(_BROKER_SYNONYMS.get(name, (name,)), layers, name)


def _synonyms_of(names: Iterable[str], layers: BrokerLayers, name: str | None = None) -> list[ConfigSynonym]:
    found = []
    for layer, source in (
        (layers.broker, FROM_BROKER),
        (layers.all_brokers, FROM_ALL_BROKERS),
        (layers.start, FROM_START),
    ):
        for synonym in names:
            if synonym in layer:
                # The text as it was set; the value of the entry is in Kafka's format.
                option = layers.options.get(synonym) or option_of_listener(synonym)
                text = None if option is None or option.is_sensitive else layer[synonym]
                found.append(ConfigSynonym(synonym, text, source))
    for synonym in names:
        option = layers.options.get(synonym)
        if option is not None and option.default_text is not None and not option.unlisted:
            found.append(ConfigSynonym(synonym, option.default_text, FROM_DEFAULT))
    # Kafka drops the synonyms before the option's own name, so with `log.retention.hours` alone the list of
    # `retention.ms` is empty and its source is "default". Tools print it, so it is the same here
    # (ConfigHelper.configSynonyms).
    while name is not None and found and found[0].name != name:
        del found[0]
    return found
