"""The broker's current settings: its settings at the start, overridden by later changes.

Changes at run time are stored as texts with the cluster's metadata (IncrementalAlterConfigs of a broker, or
of all brokers under the empty name) and outlive a restart. `follow` takes new settings; users of a setting
that may change read it here each time, or get a call from the broker.

Settings of SASL are of the start alone (`options.is_of_start`): a change of them is refused, and what is
stored already, by an older version or by the controllers of a cluster, is left out and named as without
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.config import options
from odradek.config.broker_config import BrokerConfig, check_bounds, cordoned_directories
from odradek.config.config_error import ConfigError
from odradek.config.options import BrokerLayers
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.config.option_values import TopicValues

LOG_CONFIGS_MAX = 1_000
"""Settings of logs that are shared by topics with equal ones; beyond it the oldest are made anew."""
LogConfig = TypeVar("LogConfig")
"""Makes the settings of a log from the values of a topic's options."""
BrokerConfigs = Mapping[int | None, Mapping[str, str]]
"""Overrides by node id, those for all brokers under None, as in `ClusterView`."""


class LiveConfig(Generic[LogConfig]):
    """See the module. `live.values["log.retention.ms"]` is the present value of an option."""

    def __init__(self, config: BrokerConfig, new_log_config: Callable[[TopicValues], LogConfig]) -> None:
        """`new_log_config` takes `options.topic_values`."""
        self._node_id = config.node_id
        self._layers = config.layers
        self._new_log_config = new_log_config
        self.values = config.values
        """Never changed: `follow` puts a new mapping here, so read it anew each time."""
        self.topic_defaults = config.topic_defaults
        self.topic_options = config.topic_options
        """The topic options with their standings in this node."""
        self.without_effect: tuple[str, ...] = ()
        """Options that were set at run time and have no effect here."""
        self._stored: BrokerConfigs = {}
        """The settings that `follow` has got."""
        self.refused: tuple[str, ...] = ()
        """The reasons why settings of the run time are not used, a sentence each. Only in a cluster, whose
        controllers may store any settings; a node alone refuses them."""
        self.checks: list[Callable[[BrokerLayers], None]] = []
        """Checks by parts of the broker: each takes the settings that the broker would have, and refuses with
        ConfigError what its part cannot do."""
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def option_value(self, name: str) -> Any:
        """The present value of an option whose name is not known here, as that of an extension."""
        values: Mapping[str, Any] = self.values
        return values[name]

    @property
    def layers(self) -> BrokerLayers:
        """The texts of the present settings."""
        return self._layers

    def of_listeners(self, option: str) -> dict[str, Any]:
        """An option's values for single listeners, by their names in lower case."""
        return options.values_of_listeners(self._layers, option)

    @property
    def cordoned_directories(self) -> frozenset[str]:
        """The data directories that take no new partitions."""
        return cordoned_directories(self.values)

    def follow(self, broker_configs: BrokerConfigs) -> None:
        """Replace all settings of the run time."""
        known = self._layers.options
        self._stored = broker_configs
        own, refused = options.honoured(broker_configs.get(self._node_id, {}), known)
        all_brokers, others_refused = options.honoured(broker_configs.get(None, {}), known)
        self.refused = tuple((others_refused | refused).values())
        changed = {**all_brokers, **own}
        without_effect = {*options.without_effect(changed, known), *filter(options.is_of_start, changed)}
        self.without_effect = tuple(name for name in changed if name in without_effect)
        layers = self._layers._replace(broker=_of_run_time(own), all_brokers=_of_run_time(all_brokers))
        if layers == self._layers:
            return
        values = options.broker_values(layers)
        try:
            check_bounds(values)
        except ConfigError as error:
            self.refused += (f"{error} All settings stay as they were.",)
            return
        self._layers = layers
        self.values = values
        self.topic_defaults = options.topic_defaults(self.values)
        self._log_configs = {}

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """The settings of a log, from the topic's own settings; shared by topics with equal settings."""
        key = tuple(sorted(configs.items()))
        known = self._log_configs.get(key)
        if known is None:
            own, _ = options.honoured(configs, self.topic_options)
            values = options.topic_values(own, self.topic_defaults)
            if len(self._log_configs) >= LOG_CONFIGS_MAX:
                del self._log_configs[next(iter(self._log_configs))]
            known = self._log_configs[key] = self._new_log_config(values)
        return known

    def check_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Refuse invalid settings of a topic with INVALID_CONFIG."""
        options.check_topic_configs(configs, self.topic_defaults)

    def check_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Refuse invalid settings of a group with INVALID_CONFIG."""
        options.check_group_configs(configs, self.values)

    def check_broker(self, owner: str, configs: Mapping[str, str]) -> None:
        """Refuse with INVALID_REQUEST settings of this broker (with an empty `owner`, of all brokers) that
        are invalid alone or together with its other settings. Of another broker its other settings and its
        directories are not known here: it has checked them before it forwarded the change.
        """
        layers: BrokerLayers = self._layers
        node_id = int(owner) if owner else None
        before = self._stored.get(node_id, {})
        # What an older version has stored may stay, or be deleted, while other settings are changed.
        configs = {
            name: text
            for name, text in configs.items()
            if not options.is_of_start(name) or before.get(name) != text
        }
        options.parse_broker_configs(configs, for_all_brokers=not owner, options=layers.options)
        if node_id not in (None, self._node_id):
            return
        layers = layers._replace(broker=configs) if owner else layers._replace(all_brokers=configs)
        values = options.broker_values(layers)
        try:
            check_bounds(values)
            self._check_threads(values)
            for check in self.checks:
                check(layers)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _check_threads(self, values: Mapping[str, Any]) -> None:
        """Refuse large steps, as Kafka (LogCleaner.validateReconfiguration, DynamicThreadPool)."""
        for name in options.THREADS:
            now, wanted = self.option_value(name), values[name]
            if wanted != now and not max(now // 2, 1) <= wanted <= 2 * now:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Invalid dynamic configuration: {name} is {now}, so {max(now // 2, 1)} to "
                    f"{2 * now} may be next, not {wanted}.",
                )


def _of_run_time(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in configs.items() if not options.is_of_start(name)}
