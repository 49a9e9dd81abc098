"""The broker's configuration: read from all sources, checked, and returned as one typed object.

The sources, the weakest first: defaults, defaults of a Docker image (`ODRADEK_DEFAULT_*`), a
`server.properties` file, variables `KAFKA_*` as in Kafka's Docker image, `--set` and the short forms of the
command line, keywords of the Python API. Each error is one `ConfigError`: a sentence with the option, its
source, and the correction.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from os.path import abspath
from typing import TYPE_CHECKING, Any, Final

from odradek.config import options
from odradek.config.config_error import ConfigError
from odradek.config.listeners import (
    HOST_PORT,
    OLDEST,
    Listener,
    advertised_listeners,
    check_ports_differ,
    endpoints,
    inter_broker_listener,
    is_name,
    protocol_map,
)
from odradek.config.near_names import nearest
from odradek.config.option import Option
from odradek.config.options import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerLayers, BrokerOptions
from odradek.config.properties import parse_properties
from odradek.config.roles import Role, role_of

if TYPE_CHECKING:
    from odradek.config.cluster_config import ClusterConfig
    from odradek.config.controller_config import ControllerConfig
    from odradek.config.credentials import Credentials
    from odradek.config.first_users import FirstUser
    from odradek.config.listener_security import ListenerSecurity
    from odradek.config.logins import Logins
    from odradek.config.option_values import BrokerValues, TopicValues
    from odradek.config.worker_place import WorkerPlace

_ADDRESS = re.compile(HOST_PORT)
ALL_DIRECTORIES = "*"
CLEANER_BUFFER_BYTES_MIN = 1 << 20
_OF_SECURITY = ("listener.name.", "ssl.", "sasl.", "connections.max.reauth.ms")
_OF_CONTROLLER_LISTENERS = {
    *("process.roles", "controller.listener.names", "controller.quorum.voters"),
    "controller.quorum.bootstrap.servers",
}
_KAFKA = "KAFKA_"
_DEFAULT = "ODRADEK_DEFAULT_"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The class of Kafka whose rules ours has."""

# Variables of Kafka's image and scripts that are no options (Kafka: KafkaDockerWrapper and bin/*.sh).
_NO_OPTIONS = frozenset(
    "KAFKA_" + name
    for name in (
        "VERSION", "HEAP_OPTS", "HEAP_OPT", "LOG4J_OPTS", "LOG4J_CMD_OPTS", "OPTS", "JMX_OPTS", "JMX_PORT",
        "JMX_HOSTNAME", "JVM_PERFORMANCE_OPTS", "GC_LOG_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL", "DEBUG", "HOME", "CLUSTER_ID",
    )
)  # fmt: skip

METRICS_LISTEN: Final = "odradek.metrics.listen"
TEST_API_LISTEN: Final = "odradek.test.api.listen"
CONSOLE_LISTEN: Final = "odradek.console.listen"
UNIX: Final = "unix:"
"""Begins the path of a socket of the file system, in place of an address."""


class BrokerConfig:
    """The configuration of a broker at its start; made by `load`, not changed afterwards.

    `config.values["log.retention.ms"]` is the value of an option at the start. Attributes have what is made
    from several options, or from their texts.
    """

    values: "BrokerValues"
    node_id: int
    cluster_id: str | None
    """The configured cluster id (`--cluster-id`, or the variable CLUSTER_ID as in Kafka's image), if any."""
    cluster: "ClusterConfig | None"
    """The options of a broker of a cluster; None of another node."""
    controller: "ControllerConfig | None"
    """The options of a controller; None of another node."""
    worker: int | None
    """Number of the worker; 0 of the controller of workers (`config/worker_place.py`); None: no worker."""
    topic_options: Mapping[str, Option]
    """The topic options with their standings in this node."""
    listeners: tuple[Listener, ...]
    """The listeners to open; never empty."""
    controller_listeners: tuple[Listener, ...]
    """Listeners of a node alone at which it is a controller, in the order of `controller.listener.names`."""
    advertised: dict[str, Listener]
    """By listener name; each client of any other listener gets the address at which it connected. A listener
    with a host name is in it, too. Port 0 stands for the port of the opened listener."""
    inter_broker_listener: str
    security: "Mapping[str, ListenerSecurity]"
    """By listener name; a PLAINTEXT listener has none."""
    controller_security: "ListenerSecurity | None"
    """With which this node connects to controllers; None: PLAINTEXT, or it is alone."""
    logins: "Mapping[str, Logins]"
    """By the name of a listener with SASL."""
    inter_broker_login: "Credentials | None"
    """With which this node logs in to other brokers; None: it need not."""
    controller_login: "Credentials | None"
    """The same for controllers."""
    metrics_address: tuple[str, int] | None
    """Host and port of the endpoint with metrics; None: there is none."""
    test_api_addresses: "tuple[tuple[str, int] | str, ...]"
    """Host and port of the test API, or the path of its socket; None: there is none."""
    console_address: tuple[str, int] | None
    """Host and port of the web console; None: there is none."""
    data_directories: tuple[str, ...]
    metadata_directory: str
    """Directory of the metadata log of a controller or a node alone: `metadata.log.dir`, else the first of
    `log.dirs`."""
    layers: BrokerLayers
    """The texts set at the start, for DescribeConfigs."""
    topic_defaults: "TopicValues"
    """Value of each topic option without a setting of the topic or a change at run time."""
    without_effect: tuple[str, ...]
    """Options that were set and have no effect here, for one log line at the start."""
    warnings: tuple[str, ...]
    """Sentences for the log at the start."""
    super_users: frozenset[str]
    """Principals that may do everything."""
    first_levels: Mapping[str, int] | None
    """The configured feature levels of a new cluster, if any."""
    last_versions: Mapping[int, int]
    """Last version by the key of an API, -1: it is not served. An API that is not in it has all versions."""
    emulated: str | None
    """The release of Kafka for which this broker stands in."""
    first_users: "tuple[FirstUser, ...]"
    """Users that are to be there, from the environment."""

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        cluster_id: str | None = None,
        warnings: Iterable[str] = (),
        first_levels: Mapping[str, int] | None = None,
        known: BrokerOptions = BROKER_OPTIONS,
        first_users: "tuple[FirstUser, ...]" = (),
        place: "WorkerPlace | None" = None,
    ) -> None:
        """`place`: of a worker, or of the controller of workers (`config/worker_place.py`)."""
        self.cluster_id = cluster_id
        self.worker = None if place is None else place.index
        self.first_users = first_users
        self.first_levels = first_levels
        values = options.broker_values(BrokerLayers(start=given, options=known))
        self.node_id = _node_id(given, values)
        role = role_of(values, self.node_id) if place is None else place.role
        in_cluster = role is not Role.ALONE
        self.topic_options = TOPIC_OPTIONS
        if in_cluster:
            known, self.topic_options = known.of_role(role), options.of_role(role, TOPIC_OPTIONS)
        self.layers = BrokerLayers(start=dict(given), options=known)
        self.values = options.broker_values(self.layers) if in_cluster else values
        self.topic_defaults = options.topic_defaults(self.values)
        metrics = self.values[METRICS_LISTEN]
        self.metrics_address = _http_address(METRICS_LISTEN, metrics) if metrics else None
        self.test_api_addresses = tuple(map(_test_api_address, self.values[TEST_API_LISTEN]))
        console = self.values[CONSOLE_LISTEN]
        self.console_address = _http_address(CONSOLE_LISTEN, console) if console else None
        self.data_directories = _data_directories(self.values)
        self.metadata_directory = _metadata_directory(self.values, self.data_directories)
        self._unused_security: tuple[str, ...] = ()
        self._security_warnings: tuple[str, ...] = ()
        self.security, self.logins = {}, {}
        self.controller_security = None
        self.inter_broker_login = self.controller_login = None
        self.cluster = self.controller = None
        self.controller_listeners = ()
        if place is not None:
            listener_names = self._resolve_place(given, place)
        elif role is Role.CONTROLLER:
            if self.metrics_address is not None:
                raise ConfigError(f"{METRICS_LISTEN} is for brokers: a controller serves no metrics.")
            if self.test_api_addresses:
                raise ConfigError(f"{TEST_API_LISTEN} is for brokers: a controller has no test kit.")
            if self.console_address is not None:
                raise ConfigError(f"{CONSOLE_LISTEN} is for brokers: a controller has no web console.")
            listener_names = self._resolve_controller(given)
        else:
            self.cluster, listener_names = self._resolve_listeners(given, in_cluster=role is Role.BROKER)
        self._read_security(listener_names)
        if place is None and self.values["odradek.workers"] > 1:
            from odradek.config.worker_place import refuse_roles

            refuse_roles(self.values)
        elif role is Role.ALONE:
            _check_single_node(self.values)
        if role is Role.BROKER and first_users:
            raise ConfigError(
                "ODRADEK_ADD_SCRAM is for a node alone: a cluster has its users from kafka-storage format "
                "--add-scram and kafka-configs."
            )
        if role is Role.BROKER and first_levels is not None:
            raise ConfigError(
                "--feature and --release-version are for a node alone: a cluster has its feature levels, and "
                "kafka-features changes them."
            )
        self.last_versions, self.emulated = _limited_versions(self.values, role)
        self.super_users = _authorization(self.values)
        if place is not None:
            from odradek.config.worker_place import PRINCIPAL

            self.super_users |= {PRINCIPAL}
        check_bounds(self.values)
        _check_internal_topics(self.values)
        without_effect = {
            *options.without_effect(given, known),
            *self._unused_security,
            *_unused_at_zookeeper(given, self.values),
        }
        if self.controller_listeners:
            without_effect -= _OF_CONTROLLER_LISTENERS
        self.without_effect = tuple(name for name in given if name in without_effect)
        more = self._security_warnings
        self.warnings = (*warnings, *more, *_more_warnings(self.values, role))

    def _resolve_listeners(
        self, given: Mapping[str, str], *, in_cluster: bool
    ) -> "tuple[ClusterConfig | None, set[str]]":
        """Also the names that settings of single listeners may have."""
        values = self.values
        controllers = {name.upper() for name in values["controller.listener.names"] or ()}
        protocols = protocol_map(values["listener.security.protocol.map"])
        if "listener.security.protocol.map" not in given:
            protocols |= dict.fromkeys(controllers - protocols.keys(), "PLAINTEXT")
        opened = endpoints("listeners", values["listeners"], protocols)
        check_ports_differ(opened)
        served = [listener for listener in opened if listener.name not in controllers]
        if not in_cluster and "controller" in (values["process.roles"] or ()):
            by_name = {listener.name: listener for listener in opened}
            names_in_order = [name.upper() for name in values["controller.listener.names"] or ()]
            self.controller_listeners = tuple(
                by_name[name] for name in dict.fromkeys(names_in_order) if name in by_name
            )
        # Those of Kafka 0.7 come last: the first one is for all other clients.
        self.listeners = tuple(sorted(served, key=lambda listener: listener.protocol in OLDEST))
        of_today = tuple(listener for listener in self.listeners if listener.protocol not in OLDEST)
        if not of_today:
            raise ConfigError(
                "listeners has none for clients: add one that is not in controller.listener.names, "
                "such as PLAINTEXT://localhost:9092."
            )
        if in_cluster and len(of_today) != len(self.listeners):
            raise ConfigError(
                f"listener.security.protocol.map gives listener {self.listeners[-1].name} the protocol "
                f"{self.listeners[-1].protocol}, which only a node alone can serve: its offsets are bytes in "
                "the log of one node."
            )
        names = {listener.name for listener in opened}
        advertised = endpoints("advertised.listeners", values["advertised.listeners"] or (), protocols)
        served_names = {listener.name for listener in self.controller_listeners}
        self.advertised = advertised_listeners(advertised, names, controllers - served_names)
        if "listeners" in given:
            for listener in (*self.listeners, *self.controller_listeners):
                if is_name(listener.host):
                    self.advertised.setdefault(listener.name, listener)
        self.inter_broker_listener = inter_broker_listener(
            given, values, of_today, controllers, or_first=not in_cluster
        )
        known_names = {*protocols, *names, *controllers}
        if not in_cluster:
            return None, known_names
        from odradek.config.cluster_config import cluster_config

        cluster = cluster_config(
            values,
            given=given,
            node_id=self.node_id,
            opened=opened,
            advertised=[one for one in advertised if one.name not in controllers],
            protocols=protocols,
            inter_broker_listener_name=self.inter_broker_listener,
        )
        return cluster, known_names

    def _resolve_place(self, given: Mapping[str, str], place: "WorkerPlace") -> set[str]:
        """Names that settings of single listeners may have. The listener of the place comes last: clients are
        told of the first one."""
        _, listener_names = self._resolve_listeners(given, in_cluster=False)
        if place.is_controller:
            self.advertised = {}
            self.controller = place.controller()
            self.listeners = self.controller.listeners
        else:
            self.cluster = place.cluster(self.values, self.listeners, self.advertised)
            self.listeners = (*self.listeners, place.listener)
        self.inter_broker_listener = place.listener.name
        return listener_names

    def _resolve_controller(self, given: Mapping[str, str]) -> set[str]:
        """Names that settings of single listeners may have."""
        from odradek.config.controller_config import controller_config, listener_names

        values = self.values
        controllers = listener_names(values)
        protocols = protocol_map(values["listener.security.protocol.map"])
        if "listener.security.protocol.map" not in given:
            protocols |= dict.fromkeys(set(controllers) - protocols.keys(), "PLAINTEXT")
        opened = endpoints("listeners", values["listeners"] if "listeners" in given else (), protocols)
        check_ports_differ(opened)
        names = {listener.name for listener in opened}
        advertised = endpoints("advertised.listeners", values["advertised.listeners"] or (), protocols)
        self.advertised = advertised_listeners(advertised, names, set())
        self.controller = controller_config(
            values,
            given=given,
            names=controllers,
            opened=opened,
        )
        self.listeners = self.controller.listeners
        self.inter_broker_listener = self.listeners[0].name
        return {*protocols, *names, *controllers}

    def _read_security(self, listener_names: Iterable[str]) -> None:
        """Imports nothing if no option speaks of security."""
        opened = (*self.listeners, *self.controller_listeners)
        protocols = [listener.protocol for listener in opened]
        if self.cluster is not None:
            protocols.append(self.cluster.controller_security_protocol)
        is_secured = any(protocol not in {"PLAINTEXT", *OLDEST} for protocol in protocols)
        if not is_secured and not any(name.startswith(_OF_SECURITY) for name in self.layers.start):
            return
        from odradek.config import broker_security

        found = broker_security.read(self.values, self.layers, opened, listener_names, self.cluster)
        self.security, self.logins = found.listeners, found.logins
        self.inter_broker_login, self.controller_login = found.inter_broker, found.controllers
        self.controller_security = found.of_controllers
        self._unused_security, self._security_warnings = found.unused, found.warnings


def _limited_versions(values: "BrokerValues", role: Role) -> tuple[Mapping[int, int], str | None]:
    """Imports nothing if no option speaks of it."""
    asked, release = values["odradek.max.versions"], values["odradek.emulate"]
    if not asked and not release:
        return {}, None
    from odradek.config.api_releases import EMULATE, MAX_VERSIONS, emulated_release, last_versions

    if role is not Role.ALONE or values["odradek.workers"] > 1:
        raise ConfigError(
            f"{MAX_VERSIONS if asked else EMULATE} is for a node alone: nodes of a cluster need all versions "
            "to speak with each other."
        )
    emulated = emulated_release(release)
    return last_versions(asked, emulated), emulated


def _unused_at_zookeeper(given: Iterable[str], values: "BrokerValues") -> tuple[str, ...]:
    """Imports nothing if no option speaks of ZooKeeper."""
    if not any(name.startswith("zookeeper.") for name in given):
        return ()
    from odradek.config.zookeeper import settings_without_use

    return settings_without_use(given, values)


# --- Loading ---


def load(
    path: str | PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    listen: str | None = None,
    data_dir: str | PathLike[str] | None = None,
    advertise: str | None = None,
    metrics: str | None = None,
    test_api: str | None = None,
    console: str | None = None,
    workers: str | None = None,
    keywords: Mapping[str, Any] | None = None,
    first_levels: Mapping[str, int] | None = None,
    more_options: Iterable[Option] = (),
    cluster_id: str | None = None,
) -> BrokerConfig:
    """Read and check everything.

    `environ` is usually `os.environ`; `sets` are texts "name=value"; `listen` and `advertise` are "HOST:PORT"
    and replace the listeners of the file, as `metrics`, `test_api` and `console` ("[HOST:]PORT") and
    `workers` do their options; `keywords` are Python values by option name, underscores for dots.
    `first_levels` are the feature levels with which a new cluster begins. `more_options` are accepted besides
    Kafka's. `cluster_id` takes precedence over the variable CLUSTER_ID.
    """
    more_options = tuple(more_options)
    known = BROKER_OPTIONS + more_options if more_options else BROKER_OPTIONS
    sources = _Sources(known)
    if path is not None:
        sources.add_file(path)
    environ = environ or {}
    sources.add_environment(environ)
    sources.add_defaults(environ)
    for text in sets:
        sources.add_set(text)
    if listen is not None:
        sources.listen(listen)
    if data_dir is not None:
        sources.put("log.dirs", fspath(data_dir), "--data-dir")
    for name, value in (keywords or {}).items():
        sources.add_keyword(name, value)
    if advertise is not None:
        sources.advertise(advertise)
    if metrics is not None:
        sources.put(METRICS_LISTEN, metrics, "--metrics")
    if test_api is not None:
        sources.put(TEST_API_LISTEN, test_api, "--test-api")
    if console is not None:
        sources.put(CONSOLE_LISTEN, console, "--console")
    if workers is not None:
        sources.put("odradek.workers", workers, "--workers")
    sources.check_values()
    return BrokerConfig(
        sources.given,
        cluster_id=cluster_id or environ.get("CLUSTER_ID") or None,
        warnings=sources.warnings,
        first_levels=first_levels,
        known=known,
        first_users=_first_users(environ),
    )


def _first_users(environ: Mapping[str, str]) -> "tuple[FirstUser, ...]":
    if "ODRADEK_ADD_SCRAM" not in environ:
        return ()
    from odradek.config.first_users import VARIABLE, parse

    return parse(environ[VARIABLE])


class _Sources:
    """The texts so far, and the source of each."""

    def __init__(self, known: BrokerOptions) -> None:
        self._known = known
        self.given: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []

    def put(self, name: str, text: str, origin: str) -> None:
        self.given[name] = options.hidden(name, text, self._known)
        self.origins[name] = origin

    def add_file(self, path: str | PathLike[str]) -> None:
        path = fspath(path)
        try:
            with open(path, "rb") as file:
                properties = parse_properties(file.read())
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        for name, text in properties.items():
            self._put_or_warn(name, text, path)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for variable, text in environ.items():
            if variable.startswith(_KAFKA) and variable not in _NO_OPTIONS:
                self._put_or_warn(option_of_variable(variable), text, f"environment variable {variable}")
        if "KAFKA_ADVERTISED_LISTENERS" in environ and "listeners" not in self.given:
            # Kafka's image does this in its start script (docker/resources/common-scripts/configure).
            everywhere = re.sub(r"://[^,]*:", "://0.0.0.0:", environ["KAFKA_ADVERTISED_LISTENERS"])
            self.put("listeners", everywhere, "environment variable KAFKA_ADVERTISED_LISTENERS")

    def add_defaults(self, environ: Mapping[str, str]) -> None:
        """The defaults of a Docker image, weaker than the file and the environment."""
        for variable, text in environ.items():
            if variable.startswith(_DEFAULT):
                name = option_of_variable(variable, _DEFAULT)
                if name not in self.given:
                    self._put_or_warn(name, text, f"environment variable {variable}")

    def add_set(self, text: str) -> None:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--set takes NAME=VALUE, not {name!r}.")
        self._put_or_refuse(name, value.strip(), "--set")

    def add_keyword(self, name: str, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, list | tuple):
            value = ",".join(str(item) for item in value)
        text = value if isinstance(value, str) else str(value)
        # A name with dots is an option's own, in which an underscore is one (listener.name.sasl_ssl.*).
        self._put_or_refuse(name if "." in name else name.replace("_", "."), text, "keyword")

    def listen(self, address: str) -> None:
        host, port = _address("--listen", address)
        self.put("listeners", str(Listener("PLAINTEXT", host, port)), "--listen")
        # Related options in a file or a variable are for the replaced listener names; on the command line
        # they are for --listen.
        for name in ("advertised.listeners", "inter.broker.listener.name", "listener.security.protocol.map"):
            if self.origins.get(name) != "--set":
                self.given.pop(name, None)

    def advertise(self, address: str) -> None:
        host, port = _address("--advertise", address)
        if not host or not port:
            raise ConfigError(f"--advertise needs a host and a port that clients can reach, not {address!r}.")
        controllers = self.given.get("controller.listener.names", "").upper().split(",")
        listeners = self.given.get("listeners", "PLAINTEXT://").split(",")
        names = [listener.partition("://")[0].strip().upper() for listener in listeners]
        names = [name for name in names if name not in controllers]
        if len(names) != 1:
            raise ConfigError(
                "--advertise is for one listener, and there are several: "
                "use --set advertised.listeners=NAME://HOST:PORT,... instead."
            )
        self.put("advertised.listeners", str(Listener(names[0], host, port)), "--advertise")

    def check_values(self) -> None:
        for name, text in self.given.items():
            if not self._is_known(name):
                continue
            try:
                option, refusal = self._known.get(name), None
                if option is None:
                    options.parse_of_listener(name, text)
                else:
                    refusal = option.refusal_unless_built(option.parse(text))
            except ValueError as error:
                refusal = str(error)
            if refusal is not None:
                raise ConfigError(f"{refusal[:-1]} (given by {self.origins[name]}).")

    def _is_known(self, name: str) -> bool:
        return name in self._known or options.option_of_listener(name) is not None

    def _unknown(self, name: str, origin: str) -> str:
        near = nearest(name, self._known)
        hint = f" Did you mean {near}?" if near else ""
        return f"There is no option {name!r} (given by {origin}).{hint}"

    def _put_or_warn(self, name: str, text: str, origin: str) -> None:
        if not self._is_known(name):
            self.warnings.append(f"{self._unknown(name, origin)} It is ignored.")
        self.put(name, text, origin)

    def _put_or_refuse(self, name: str, text: str, origin: str) -> None:
        if not self._is_known(name):
            raise ConfigError(self._unknown(name, origin))
        self.put(name, text, origin)


def option_of_variable(variable: str, prefix: str = _KAFKA) -> str:
    """The option that an environment variable names (KAFKA_LOG_RETENTION_MS: log.retention.ms).

    As Kafka's image does it: one underscore is a dot, two are an underscore, three are a dash.
    """
    name = variable.removeprefix(prefix).lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")


def variable_of_option(name: str) -> str:
    """The environment variable that `option_of_variable` reads as this option."""
    return _KAFKA + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _http_address(option: str, text: str) -> tuple[str, int]:
    return _address(option, text if ":" in text else f"127.0.0.1:{text}")


def _test_api_address(text: str) -> tuple[str, int] | str:
    """Host and port, or the path of a socket of the file system."""
    if text.startswith(UNIX):
        return text.removeprefix(UNIX)
    return _http_address(TEST_API_LISTEN, text)


def _address(what: str, text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(
            f"{what} takes HOST:PORT, such as localhost:9092, 0.0.0.0:9092 or [::1]:0, not {text!r}."
        )
    return match["ipv6"] or match["host"] or "", int(match["port"])


# --- Checks across options (Kafka: KafkaConfig.validateValues) ---


def _node_id(given: Mapping[str, str], values: "BrokerValues") -> int:
    node_id, broker_id = values["node.id"], values["broker.id"]
    assert node_id is not None, "a node alone has a default"
    if broker_id < 0:
        return node_id
    if "node.id" in given and node_id != broker_id:
        raise ConfigError(
            f"node.id={node_id} and broker.id={broker_id} differ: give one of them, or make them equal."
        )
    return broker_id


def _data_directories(values: "BrokerValues") -> tuple[str, ...]:
    directories = values["log.dirs"] or values["log.dir"]
    if not directories or not all(directories):
        raise ConfigError("log.dirs has no directory: give at least one, such as ./data.")
    return directories


def _metadata_directory(values: "BrokerValues", data_directories: Sequence[str]) -> str:
    """One of `data_directories` as it is written there."""
    path = values["metadata.log.dir"] or data_directories[0]
    return next((one for one in data_directories if one.rstrip("/") == path.rstrip("/")), path)


def _more_warnings(values: "BrokerValues", role: Role) -> list[str]:
    return [*_authorization_warnings(values), *_warnings_of_roles(values, role)]


def _authorization_warnings(values: "BrokerValues") -> list[str]:
    if values["authorizer.class.name"] or not (
        values["super.users"] or values["allow.everyone.if.no.acl.found"]
    ):
        return []
    return [
        "super.users and allow.everyone.if.no.acl.found have no effect without authorizer.class.name: every "
        "client may do everything."
    ]


def _warnings_of_roles(values: "BrokerValues", role: Role) -> list[str]:
    if role is Role.BROKER:
        from odradek.config.cluster_config import cluster_warnings

        return cluster_warnings(values)
    if role is Role.ALONE and values["process.roles"] == ("broker",):
        return [
            "process.roles=broker has no controllers in controller.quorum.bootstrap.servers or "
            "controller.quorum.voters: this node runs alone, without a cluster."
        ]
    return []


def _authorization(values: "BrokerValues") -> frozenset[str]:
    """The super users. Refuses another authorizer than ours, and principals without a type."""
    if values["authorizer.class.name"] not in ("", STANDARD_AUTHORIZER):
        raise ConfigError(
            f"authorizer.class.name={values['authorizer.class.name']} is a Java class: use "
            f"{STANDARD_AUTHORIZER}, whose rules are built in, or leave it empty."
        )
    super_users = frozenset(filter(None, map(str.strip, values["super.users"].split(";"))))
    for one in super_users:
        if ":" not in one:
            raise ConfigError(f"super.users has {one!r} without a type: write User:{one}.")
    return super_users


def _check_single_node(values: "BrokerValues") -> None:
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    ):
        factor = values[name]
        if factor != 1:
            raise ConfigError(
                f"{name}={factor} needs {factor} brokers, and a node alone is one: set it to 1."
            )


def check_bounds(values: "BrokerValues") -> None:
    """Refuse values that contradict each other, or are wrong although within the bounds of their options."""
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        _check_order(values, low, high)
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] == 0:
            raise ConfigError(f"{name} must not be 0: use -1 to keep records for ever.")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError(
            "max.connections.per.ip=0 refuses all clients except those of max.connections.per.ip.overrides: "
            "add one there."
        )
    buffer_bytes, threads = values["log.cleaner.dedupe.buffer.size"], values["log.cleaner.threads"]
    if threads and buffer_bytes // threads <= CLEANER_BUFFER_BYTES_MIN:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={buffer_bytes} is too small: give more than 1 MiB for each of "
            f"the {threads} log.cleaner.threads."
        )
    _check_cordoned(values)
    _check_groups(values)


def cordoned_directories(values: "BrokerValues") -> frozenset[str]:
    """The data directories that take no new partitions."""
    directories, cordoned = _data_directories(values), values["cordoned.log.dirs"]
    if cordoned == (ALL_DIRECTORIES,):
        return frozenset(directories)
    return frozenset(path for path in directories if path in cordoned or abspath(path) in cordoned)


def _check_cordoned(values: "BrokerValues") -> None:
    cordoned = values["cordoned.log.dirs"]
    if ALL_DIRECTORIES in cordoned:
        if len(cordoned) > 1:
            raise ConfigError("cordoned.log.dirs=* means all directories: remove the others.")
        return
    known = {name for path in _data_directories(values) for name in (path, abspath(path))}
    if unknown := [path for path in cordoned if path not in known]:
        raise ConfigError(
            f"cordoned.log.dirs has {', '.join(unknown)}, which is not in log.dirs: write it as there."
        )


def _check_groups(values: "BrokerValues") -> None:
    """Kafka's checks of the newer group protocols (GroupCoordinatorConfig and ShareGroupConfig)."""
    bounded = [
        (group, name)
        for group in ("group.consumer", "group.share", "group.streams")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    ]
    of_shares = ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks")
    bounded += [("group.share", name) for name in of_shares]
    for group, name in bounded:
        _check_order(values, f"{group}.min.{name}", f"{group}.max.{name}")
        _check_order(values, f"{group}.min.{name}", f"{group}.{name}")
        _check_order(values, f"{group}.{name}", f"{group}.max.{name}")
    for group in ("group.consumer", "group.share", "group.streams"):
        _check_order(values, f"{group}.heartbeat.interval.ms", f"{group}.session.timeout.ms", below=True)
    _check_order(values, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
    _check_order(values, "group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas")
    intervals = "group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"
    _check_order(values, *intervals)
    _check_order(values, "group.share.max.size", "group.share.max.share.sessions")
    if len(values["group.share.assignors"]) != 1:
        raise ConfigError("group.share.assignors must name one assignor: simple.")
    if not values["group.consumer.assignors"]:
        raise ConfigError("group.consumer.assignors must name an assignor: uniform, range or both.")
    if not values["group.streams.assignors"]:
        raise ConfigError("group.streams.assignors must name an assignor: sticky.")
    if "classic" not in values["group.coordinator.rebalance.protocols"]:
        raise ConfigError("group.coordinator.rebalance.protocols must have classic, which is always offered.")


def _check_order(values: Mapping[str, Any], low: str, high: str, *, below: bool = False) -> None:
    if values[low] > values[high] or (below and values[low] == values[high]):
        relation = "not below" if below else "above"
        raise ConfigError(
            f"{low}={values[low]} is {relation} {high}={values[high]}: lower the first or raise the second."
        )


def _check_internal_topics(values: "BrokerValues") -> None:
    """Refuse sizes with which the topic cannot be created. Kafka accepts them, and its clients then find no
    coordinator."""
    least = TOPIC_OPTIONS["segment.bytes"].low
    assert least is not None
    for name in (
        "offsets.topic.segment.bytes",
        "transaction.state.log.segment.bytes",
        "share.coordinator.state.topic.segment.bytes",
    ):
        if values[name] < least:
            raise ConfigError(f"{name}={values[name]} is too small for a topic: give {least} or more.")
