"""Writes `docs/configuration.md` from the declarations.

Use: `python -m odradek.config.page > docs/configuration.md`. A test holds the committed page to it.
"""

from collections.abc import Callable, Iterable

from odradek.config.option import INT_MAX, KIND_NAMES, LONG_MAX, READ_ONLY, STRING
from odradek.config.options import (
    ACCEPTED,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    HONOURED,
    IN_CLUSTER,
    REFUSED,
    TOPIC_OPTIONS,
    Option,
)

__all__ = ["page"]

Table = Callable[[Iterable[Option]], str]

_OPENING = """\
# Configuration

This page is made by `python -m odradek.config.page`; change `config/option_list.py` instead of it.

Odradek takes Kafka 4.3's options by Kafka's names. Each option has one of four standings:

- **honoured**: it does what Kafka says;
- **honoured in a cluster**: it does what Kafka says in a node of a cluster, and nothing in a node alone;
- **accepted without effect**: nothing reads it here (thread counts, what controllers decide, share groups,
  tiered storage, TLS and SASL, for which there are no listeners), so any value that Kafka would take is
  taken, and the log names those that were set, at start and when they are set while the broker runs;
- **refused**: it asks for what is not built (limits, policies, who may do what, a store for old segments) and
  somebody would rely on it, so it is refused when it differs from its default.

## Where values come from

Each rules over the one before:

1. the defaults below, or those of a Docker image: `ODRADEK_DEFAULT_LOG_DIR` is one for `log.dir`;
2. a file, `odradek serve server.properties`, in the syntax of Java's properties;
3. environment variables as in Kafka's Docker image: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms` (one
   underscore is a dot, two are an underscore, three are a dash); `CLUSTER_ID` names the cluster of a new data
   directory; `KAFKA_ADVERTISED_LISTENERS` without any `listeners` opens the same ports on all interfaces;
4. `--set NAME=VALUE` and the short forms `--listen`, `--data-dir`, `--advertise`, `--cluster-id`;
5. in Python, keywords with underscores for dots: `odradek.Broker(log_retention_ms=60_000)`.

A name that is not known is a warning in a file or the environment, with the nearest known name, and an error
everywhere else. Of the settings of single listeners (`listener.name.NAME.OPTION`) `max.connections` is
honoured; what is refused for all of them is refused for one, and the others are accepted without effect.

When it is ready, `odradek serve` writes an address of its own into the file that the variable
`ODRADEK_ADDRESS_FILE` names, if it is set; the image's health check asks there.
"""

_CLUSTER = """\
## A node of a cluster

A node belongs to a cluster of Apache Kafka's KRaft controllers if `controller.quorum.bootstrap.servers` or
`controller.quorum.voters` names them and `process.roles` is `broker`, as in Kafka:

    process.roles=broker
    node.id=7
    controller.quorum.bootstrap.servers=controller.example:9093
    controller.listener.names=CONTROLLER
    listeners=PLAINTEXT://0.0.0.0:9092
    advertised.listeners=PLAINTEXT://node7.example:9092
    log.dirs=/data/one,/data/two

Odradek has no controllers of its own. `process.roles=controller` is refused, and so is `broker,controller`
beside other controllers; without others this is a node alone. Connections to controllers are PLAINTEXT so
far. What Kafka refuses is refused: no `node.id`, one of a voter, `controller.listener.names` missing, without
a protocol or among `listeners`, a listener among brokers that is not advertised, controllers named without
`process.roles`.

This node does not enforce ACLs, client quotas, SCRAM credentials and delegation tokens of a cluster. It names
in its log which of them the cluster has. A cluster with ACLs it does not serve at all, at the start and when
they come later, unless `odradek.ignore.acls=true` says that this is meant: every client may do everything
here then. That option is ours; a broker of Kafka ignores it.
"""

_OTHER_DEFAULTS = """\
## Defaults of our own

Replication factors, node id, listener and directory are those that one node on one machine can have at once.
In a cluster the replication factors and in-sync replicas of internal topics have Kafka's defaults, and
`node.id` is required. The backlog is longer, so that many clients may arrive in a burst, and the sizes of
socket buffers are left to the system (-1), which fits them to each connection.

| option | Kafka's default | here |
| --- | --- | --- |
"""

_ADDRESSES = """\
With no `advertised.listeners`, a host that is written as a name in `listeners` is told to clients as it is
written. Otherwise each client is told the address at which it arrived, so one broker serves
loopback, LAN and container addresses at once. Behind a port mapping or a tunnel that address cannot be seen:
there `advertised.listeners` (short form `--advertise`) is needed.
"""


_CHANGES = """\
## Changes at run time

AlterConfigs and IncrementalAlterConfigs change every option of a topic or group below, and of the broker
those that have something in the last column: `per-broker` ones for one broker, `cluster-wide` ones for one
or, under the empty name (`kafka-configs --entity-default`), for all. They are kept with the cluster's
metadata and rule over those of the start. Those of a single listener can be set for one broker, and
`max.connections` for all. `listeners` and `listener.security.protocol.map` are refused all
the same: a broker keeps its listeners until it is started anew.
"""

_GROUP = """\
## Group options

A group has them whether it exists or not (`kafka-configs --entity-type groups`), and keeps them when it is
deleted. They must be within the bounds that the broker sets; where these change afterwards, the nearest value
that they allow counts. There are no share groups yet, so nothing reads what is set for them.
"""

_BROKER = """\
## Broker options

The last column says what may change while the broker runs.
"""


def page() -> str:
    """The whole page, ending in a newline."""
    broker = [option for option in BROKER_OPTIONS.values() if not option.internal]
    topic = [option for option in TOPIC_OPTIONS.values() if not option.internal]
    parts = [
        _OPENING,
        _CLUSTER,
        _OTHER_DEFAULTS + "".join(_difference(option) for option in broker if option.has_own_default),
        _ADDRESSES,
        _CHANGES,
        "## Topic options\n",
        _section("Honoured", topic, HONOURED, _topic_table),
        _section("Honoured in a cluster", topic, IN_CLUSTER, _plain_table),
        _section("Accepted without effect", topic, ACCEPTED, _plain_table),
        _section("Refused", topic, REFUSED, _topic_table),
        _GROUP,
        _section("Honoured", GROUP_OPTIONS.values(), HONOURED, _group_table),
        _section("Accepted without effect", GROUP_OPTIONS.values(), ACCEPTED, _plain_table),
        _BROKER,
        _section("Honoured", broker, HONOURED, _broker_table),
        _section("Honoured in a cluster", broker, IN_CLUSTER, _broker_table),
        _section("Accepted without effect", broker, ACCEPTED, _plain_table),
        _section("Refused", broker, REFUSED, _plain_table),
    ]
    return "\n".join(parts)


def _section(title: str, options: Iterable[Option], standing: str, table: Table) -> str:
    return f"### {title}\n\n" + table([option for option in options if option.standing == standing])


def _difference(option: Option) -> str:
    kafka = "none, required" if option.default is None else f"`{_shown(option.default)}`"
    return f"| `{option.name}` | {kafka} | `{_shown(option.here or option.alone)}` |\n"


def _topic_table(options: Iterable[Option]) -> str:
    rows = "".join(
        f"| `{option.name}` | {_values(option)} | {_default(option)} "
        f"| {', '.join(f'`{name}`' for name in option.synonyms)} | {option.doc} |\n"
        for option in options
    )
    return (
        "| option | values | default | default comes from | what it says |\n| --- | --- | --- | --- | --- |\n"
        + rows
    )


def _group_table(options: Iterable[Option]) -> str:
    rows = "".join(
        f"| `{option.name}` | {_values(option)} | {_default(option)} "
        f"| {', '.join(f'`{name}`' for name in option.synonyms)} "
        f"| {', '.join(f'`{name}`' for name in option.bounds if name)} | {option.doc} |\n"
        for option in options
    )
    return (
        "| option | values | default | default comes from | bounds | what it says |\n"
        "| --- | --- | --- | --- | --- | --- |\n" + rows
    )


def _broker_table(options: Iterable[Option]) -> str:
    rows = "".join(
        f"| `{option.name}` | {_values(option)} | {_default(option)} | {option.doc} "
        f"| {'' if option.dynamic == READ_ONLY else option.dynamic} |\n"
        for option in options
    )
    return "| option | values | default | what it says | dynamic |\n| --- | --- | --- | --- | --- |\n" + rows


def _plain_table(options: Iterable[Option]) -> str:
    rows = "".join(f"| `{option.name}` | {_default(option)} | {option.doc} |\n" for option in options)
    return "| option | default | what it says |\n| --- | --- | --- |\n" + rows


def _default(option: Option) -> str:
    text = option.default_text
    return f"`{_shown(text)}`" if text else ("none" if text is None else "empty")


def _shown(value: object) -> str:
    if str(value) in (str(LONG_MAX), str(INT_MAX), "1.7976931348623157E308"):
        return "unbounded"
    return str(value)


def _values(option: Option) -> str:
    kind = KIND_NAMES[option.kind]
    if option.choices:
        names = ", ".join(f"`{choice}`" for choice in option.built or option.choices)
        return f"{kind} of {names}" if option.kind != STRING else names
    if option.never:
        return f"{kind}, {option.low} to {option.high}, but not {option.never[0]}"
    if option.low is not None and option.high is not None:
        return f"{kind}, {option.low} to {option.high}"
    if option.low is not None:
        return f"{kind}, from {option.low}"
    return kind


if __name__ == "__main__":
    print(page(), end="")
