"""How the commands find their brokers: options, environment, profile.

Each source overrides the one before: the profile, ODRADEK_BOOTSTRAP_SERVERS, the file of
`--command-config`, `-X`, `-b`.
"""

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.librdkafka_names import LIBRDKAFKA_NAMES, SECRETS, java_names
from odradek.client.profiles import config_path, read_profiles
from odradek.client.settings import CLIENT_OPTIONS, DEFAULT_PORT, ClientSettings, is_client_option
from odradek.config.command_line import exact, readable
from odradek.config.near_names import did_you_mean, nearest
from odradek.security.client_security import SECURITY_OPTIONS

DEFAULT_BOOTSTRAP = "localhost:9092"
PATIENCE_MS = 15_000
"""How long a person waits for a broker that does not answer; programs wait for 60 s."""
UNKNOWN_TOPIC_MS = 1_000
"""How long a topic may be unknown; most often its name has a slip."""
_PATH = ".location"
"""With what the names of properties end whose values are paths."""
_OF_OTHER_CLIENTS = frozenset(
    {
        *("message.timeout.ms", "reconnect.backoff.ms", "retry.backoff.max.ms"),
        *("socket.timeout.ms", "transaction.timeout.ms"),
        *("ssl.crl.location", "ssl.engine.location"),
    }
)
"""Names of Java's clients and of librdkafka that look like a slip of a name that is used here."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that name brokers and log in to them."""
    group = parser.add_argument_group("brokers")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"one broker or more, with commas (default {DEFAULT_BOOTSTRAP}); the port may be left out: "
        f"{DEFAULT_PORT}",
    )
    group.add_argument("--profile", metavar="NAME", help="a profile of the configuration file")
    group.add_argument("-F", "--command-config", metavar="FILE", help="Kafka's properties for the connection")
    group.add_argument(
        "-X",
        type=exact,
        action="append",
        default=[],
        dest="properties",
        metavar="NAME=VALUE",
        help="one such property, with Kafka's name or librdkafka's; may be given many times",
    )
    group.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"how long to try (default {PATIENCE_MS // 1000})",
    )


def options_of(
    options: argparse.Namespace, environ: Mapping[str, str] = os.environ, *, asks: bool = True
) -> dict[str, str]:
    """The properties of the connection, by Kafka's names. ClientError for what cannot be read.

    `asks`: a person at a terminal is asked for the password that a user name lacks.
    """
    profiles = read_profiles(config_path(environ))
    profile = profiles.get(options.profile or environ.get("ODRADEK_PROFILE"))
    warning = profiles.warning(profile)
    if warning is not None:
        print(f"odradek: {warning}", file=sys.stderr)
    named = profile.resolved()
    _lay(named, {"bootstrap.servers": environ.get("ODRADEK_BOOTSTRAP_SERVERS")})
    password = environ.get("ODRADEK_SASL_PASSWORD")
    _lay(named, {"sasl.password": password})
    if options.command_config is not None:
        _lay(named, properties_of(options.command_config))
    _lay(named, dict(_property(text) for text in options.properties))
    _lay(named, {"bootstrap.servers": options.bootstrap_server})
    if "sasl.username" not in named and named.get("sasl.password") == password:
        # A token or a certificate has no user's name: the password in the environment is for others.
        named.pop("sasl.password", None)
    if asks and "sasl.username" in named and "sasl.password" not in named and _is_typed():
        named["sasl.password"] = _asked(named["sasl.username"])
    named.setdefault("bootstrap.servers", named.pop("metadata.broker.list", DEFAULT_BOOTSTRAP))
    return java_names(named)


def _is_typed() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _asked(user: str) -> str:
    from getpass import getpass

    try:
        password = getpass(f"Password of {user}: ")
    except EOFError:
        password = ""
    if not password:
        raise ClientError(f"the password of {user} is missing")
    return password


def client_settings(
    options: argparse.Namespace, environ: Mapping[str, str] = os.environ, *, asks: bool = True
) -> ClientSettings:
    """The settings of the client; see `options_of`. ClientError for options that are wrong or unknown."""
    return settings_of(options, options_of(options, environ, asks=asks))


def settings_of(
    options: argparse.Namespace, named: Mapping[str, str], used_elsewhere: Collection[str] = ()
) -> ClientSettings:
    """`client_settings` of the properties of `options_of`, some of which the caller uses itself."""
    check_names(named, used_elsewhere)
    known = {name: value for name, value in named.items() if is_client_option(name)}
    if options.timeout is not None:
        known["default.api.timeout.ms"] = str(timeout_ms(options.timeout))
    known.setdefault("default.api.timeout.ms", str(PATIENCE_MS))
    settings = ClientSettings.from_options(known)
    return replace(settings, unknown_topic_ms=UNKNOWN_TOPIC_MS, tell=Telling())


def check_names(named: Iterable[str], used_elsewhere: Collection[str] = ()) -> None:
    """Tells which properties are not used. ClientError for a slip of a name."""
    for name in sorted(named):
        if name in used_elsewhere:
            continue
        if not is_client_option(name):
            tell_unused(name, used_elsewhere)
        elif name not in SECURITY_OPTIONS and name not in CLIENT_OPTIONS:
            _refuse_slip_of_librdkafka(name)


def _refuse_slip_of_librdkafka(name: str) -> None:
    """The options of security refuse what they do not know; they have Java's names alone."""
    near = nearest(name, [*SECURITY_OPTIONS, *LIBRDKAFKA_NAMES])
    if near in LIBRDKAFKA_NAMES and name not in _OF_OTHER_CLIENTS:
        raise ClientError(f"there is no property {name}; did you mean {near}?")


def timeout_ms(seconds: float) -> int:
    """Milliseconds of `--timeout`. ClientError for what is no such time."""
    if not 0 < seconds <= 86_400:
        raise ClientError("--timeout has to be a number of seconds above 0, of a day at most")
    return max(1, round(seconds * 1000))


def tell_unused(name: str, used_elsewhere: Collection[str]) -> None:
    """A note, as a file for Java's tools may have options of producers and consumers. ClientError for a slip:
    with `bootstrap.server` the command would go to another cluster."""
    known = [*CLIENT_OPTIONS, *SECURITY_OPTIONS, *LIBRDKAFKA_NAMES, *used_elsewhere]
    if name in known:
        return
    hint = "" if name in _OF_OTHER_CLIENTS else did_you_mean(name, known)
    if hint:
        raise ClientError(f"there is no property {name}{hint}")
    print(f"odradek: the property {name} is not used here", file=sys.stderr)


class Telling:
    """Tells a person on stderr why a command waits; each sentence once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            print(f"odradek: {sentence} (odradek doctor says more)", file=sys.stderr, flush=True)


def cluster_of(options: argparse.Namespace) -> Cluster:
    """The cluster that the options name; it connects with the first request."""
    return Cluster(client_settings(options))


def _lay(named: dict[str, str], others: Mapping[str, str | None]) -> None:
    named.update({name: value for name, value in others.items() if value is not None})


def properties_of(path: str) -> dict[str, str]:
    """The properties of a file as Kafka's tools take it. ClientError if it cannot be read."""
    from odradek.config.config_error import ConfigError
    from odradek.security.client_security import read_command_config

    try:
        return read_command_config(path)
    except ConfigError as error:
        raise ClientError(str(error).rstrip(".")) from None


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"-X {name} is not NAME=VALUE")
    if name in SECRETS:
        raise ClientError(
            f"-X {name} would show the secret to everybody who can list the processes of this machine: put "
            "it into a profile, into the file of --command-config, or (a password) into ODRADEK_SASL_PASSWORD"
        )
    return name, value if name.endswith(_PATH) else readable(value)
