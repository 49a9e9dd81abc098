"""`odradek serve`: a broker."""

import argparse
import gc
import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from odradek.config.command_line import exact
from odradek.wire.version import __version__

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.main_loop import NodeServer
    from odradek.server.workers.supervisor import ReadyWorkers

ABOUT = """\
Start a broker. It prints one line when it is ready and stops cleanly at Ctrl-C or
SIGTERM. Options come, each overriding the one before, from defaults, from the file,
from KAFKA_* environment variables (KAFKA_LOG_RETENTION_MS is log.retention.ms), and from
the options below. All names are Kafka's; docs/configuration.md lists what each does here."""

EXAMPLES = """\
examples:
  odradek serve --listen localhost:0 --data-dir /tmp/try
                        a free port, shown in the line it prints
  odradek serve --set log.retention.hours=24 --set num.partitions=6
  odradek serve --listen 0.0.0.0:9092 --advertise broker.example:9092
                        behind a port mapping, where clients use another address
  odradek serve --log-format json --log-level warning --log-level odradek.disks=info
  odradek serve --metrics 9644
                        http://127.0.0.1:9644/metrics, /health/live, /health/ready, /admin
  odradek serve --console 9080
                        and a web console at http://127.0.0.1:9080 (docs/console.md)
  odradek serve --workers 4
                        four processes, so four cores: nodes 1 to 4 at ports 9092 to
                        9095, with the directories data, data.w1, data.w2, data.w3
  odradek serve --data-dir new --release-version 4.0 --feature transaction.version=0
                        with the feature levels that a cluster of Kafka 4.0 begins with,
                        but for one; later odradek cluster features changes
                        them

exit status: 0 after a clean stop, 1 when something is wrong, 2 for wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "properties", nargs="?", metavar="server.properties", help="file with Kafka's options"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where to listen (default localhost:9092; port 0: a free one)"
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where the data is (default ./data, or option log.dirs)"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="the address to tell clients (default: the one at which each arrived)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        help="processes, each with a core, a port and a directory of its own (default 1, or option "
        "odradek.workers)",
    )
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus and health over HTTP (without a host: 127.0.0.1; default: off)",
    )
    parser.add_argument(
        "--console",
        metavar="[HOST:]PORT",
        help="serve a web console (without a host: 127.0.0.1; default: off); its process starts with the "
        "first request, and ends after ten idle minutes",
    )
    parser.add_argument(
        "--console-anonymous",
        action="append_const",
        const="odradek.console.anonymous=true",
        default=[],
        dest="console_sets",
        help="nobody logs in to the console, at whichever address it is",
    )
    parser.add_argument(
        "--console-read-only",
        action="append_const",
        const="odradek.console.read.only=true",
        dest="console_sets",
        help="the console changes nothing, whoever asks",
    )
    parser.add_argument(
        "--console-hide-messages",
        action="append_const",
        const="odradek.console.hide.messages=true",
        dest="console_sets",
        help="the console reads no message, whoever asks",
    )
    parser.add_argument(
        "--test-api",
        metavar="[HOST:]PORT",
        help="let tests inject faults, move the clock, take snapshots and see requests over HTTP "
        "(without a host: 127.0.0.1; default: off)",
    )
    parser.add_argument(
        "--set",
        type=exact,
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="set one option; may be given many times",
    )
    parser.add_argument(
        "--cluster-id",
        metavar="ID",
        help="the cluster of a new data directory (default: that of the others or of the controllers, else "
        "a new one)",
    )
    parser.add_argument(
        "--release-version",
        metavar="VERSION",
        help="give a new data directory the feature levels of a release of Kafka, such as 4.0",
    )
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        dest="features",
        metavar="NAME=LEVEL",
        help="give a new data directory this level of a feature; may be given many times",
    )
    parser.add_argument(
        "--log-level",
        action="append",
        default=[],
        dest="log_levels",
        type=_level,
        metavar="[LOGGER=]LEVEL",
        help="which events go to stderr, a line each: debug, info, warning, error (default info); of one "
        "logger, such as odradek.connection=debug, may be given many times",
    )
    parser.add_argument(
        "--log-format", default="text", choices=("text", "json"), help="of a line on stderr (default text)"
    )


def _level(text: str) -> tuple[str, str]:
    """Logger ("" for all) and level."""
    from odradek.apis.log_levels import LOGGERS
    from odradek.server.process.log_output import LEVELS

    name, _, level = text.rpartition("=")
    if level.lower() not in LEVELS:
        raise argparse.ArgumentTypeError(f"invalid level {level!r}: there are {', '.join(LEVELS)}")
    if name and name not in LOGGERS:
        raise argparse.ArgumentTypeError(f"there is no logger {name!r}; there are {', '.join(LOGGERS)}")
    return name, level.lower()


def run(options: argparse.Namespace) -> int:
    # What is imported and loaded from here on is no garbage; looking for some costs a tenth of the start.
    # `main_loop` enables the search again when the broker is ready.
    gc.disable()
    from odradek.config.broker_config import load
    from odradek.config.config_error import ConfigError
    from odradek.server.metadata.feature_levels import read_levels
    from odradek.server.process.log_output import log_to_stderr

    try:
        config = load(
            options.properties,
            environ=os.environ,
            sets=[*options.sets, *options.console_sets],
            listen=options.listen,
            data_dir=options.data_dir,
            advertise=options.advertise,
            metrics=options.metrics,
            test_api=options.test_api,
            console=options.console,
            workers=options.workers,
            cluster_id=options.cluster_id,
            first_levels=read_levels(options.features, options.release_version),
        )
        levels = dict(options.log_levels)
        log_to_stderr(levels.pop("", "info"), levels, options.log_format)
        _log_settings(config)
        # Everything heavy comes with these imports; a wrong option has been told by now.
        if config.values["odradek.workers"] > 1:
            from odradek.server.workers.run import run as run_workers

            status = run_workers(config, config.values["odradek.workers"], _tell_workers_ready)
        else:
            from odradek.server.nodes import new_node
            from odradek.server.process.main_loop import run as run_node

            status = run_node(partial(new_node, config), on_ready=_tell_ready)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    finally:
        gc.enable()
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End the process: everything is on the disk. Python would first take down piece by piece what is in
    memory, 0.5 s for ten thousand partitions (`benchmarks.partitions`).
    """
    import logging

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Who reads it has gone; with a full disk under it nobody can be told either.
            pass
    os._exit(status)


def _metrics_text(config: "BrokerConfig", ports: Iterable[int]) -> str:
    if config.metrics_address is None:
        return ""
    host = config.metrics_address[0]
    return f", metrics {', '.join(_address_text(host, port) for port in ports)}"


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"


def _test_api_text(server: "NodeServer") -> str:
    hosts = [one[0] for one in server.config.test_api_addresses if isinstance(one, tuple)]
    if not hosts:
        return ""
    addresses = map(_address_text, hosts, server.test_api_ports)
    return f", test API {', '.join(addresses)}"


def _console_text(url: str) -> str:
    """The last thing in the line."""
    from odradek.server.process.main_loop import CONSOLE_MARK

    return f"{CONSOLE_MARK}{url}" if url else ""


def _tell_ready(server: "NodeServer") -> None:
    """One line that people read and scripts wait for; addresses with their real ports."""
    others = _metrics_text(server.config, [server.metrics_port]) + _test_api_text(server)
    others += _console_text(server.console_url)
    controllers = "".join(f", controller {_address_text(*one[1:])}" for one in server.controller_addresses)
    _tell(
        server.addresses,
        f"node {server.node_id}, cluster {server.cluster_id}, "
        f"data {','.join(server.data_directories)}{controllers}{others}",
    )
    _write_address_file(
        server.addresses, {listener.name for listener in server.listeners if listener.tls is not None}
    )


def _tell_workers_ready(ready: "ReadyWorkers") -> None:
    """Tells as `_tell_ready` does, with the addresses of all workers."""
    first, count = ready.configs[0], len(ready.configs)
    _tell(
        ready.addresses,
        f"{count} workers, nodes {first.node_id} to {first.node_id + count - 1}, cluster {ready.cluster_id}, "
        f"data {','.join(ready.data_directories)}{_metrics_text(first, ready.metrics_ports)}"
        f"{_console_text(ready.console_url)}",
    )
    with_tls = {name for name, security in first.security.items() if security.has_tls}
    _write_address_file(ready.addresses[: len(ready.addresses) // count], with_tls)


def _tell(bound: Iterable[tuple[str, str, int]], details: str) -> None:
    addresses = [_address_text(host, port) for _, host, port in bound]
    try:
        print(f"odradek {__version__} ready on {', '.join(addresses)} ({details})", flush=True)
    except OSError as error:
        # That nobody reads the line is no reason not to serve.
        from odradek.commands.output import output_failed

        output_failed(error)


def _write_address_file(addresses: Iterable[tuple[str, str, int]], with_tls: set[str]) -> None:
    path = os.environ.get("ODRADEK_ADDRESS_FILE")
    if path:
        from odradek.server.process.health import write_address

        try:
            write_address(path, addresses, with_tls)
        except OSError as error:
            from odradek.config.os_reason import reason_of

            told = f"ODRADEK_ADDRESS_FILE={path} cannot be written: {reason_of(error)}"
            print(f"odradek: {told}", file=sys.stderr)


def _log_settings(config: "BrokerConfig") -> None:
    import logging

    logger = logging.getLogger("odradek")
    for warning in config.warnings:
        logger.warning("%s", warning)
    if config.without_effect:
        logger.info("these options have no effect here: %s", ", ".join(config.without_effect))
