"""The command line: `odradek serve`, `users`, `check`, `dump`, `import-log`, `spark`, `--version`.

Exit status: 0 when all went well, 1 when something is wrong with options, ports or data (one sentence on
stderr), 2 for a usage that is not understood. Modules are imported where they are needed, so that `odradek
--version` answers at once and a broker starts in a tenth of a second.
"""

import argparse
import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from odradek import __version__

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.broker import BrokerServer

__all__ = ["main"]

_ABOUT = """\
Odradek is a durable broker that speaks Kafka's protocol: any Kafka client can use it
as it is, and it takes Kafka's own server.properties."""

_EXAMPLES = """\
examples:
  odradek serve                           a broker on localhost:9092, its data in ./data
  odradek serve --listen 0.0.0.0:9092     the same, reachable from other machines
  odradek serve server.properties         with Kafka's own options
  odradek users add admin --mechanism SCRAM-SHA-256
                                          the first user, before a start
  odradek dump data                       what a data directory holds
  odradek check data                      whether it is sound
  odradek import-log kafka-logs --topic orders
                                          take a topic of Apache Kafka into ./data
  odradek spark archive --help            jobs on Spark: topics into tables and back

'odradek serve --help' says more of serve, and so for each command."""

_SERVE_ABOUT = """\
Start a broker. It prints one line when it is ready and stops cleanly at Ctrl-C or
SIGTERM. Options come, each ruling over the one before, from defaults, from the file,
from KAFKA_* environment variables (KAFKA_LOG_RETENTION_MS is log.retention.ms), and from
the options below. All names are Kafka's; docs/configuration.md lists what each does here."""

_SERVE_EXAMPLES = """\
examples:
  odradek serve --listen localhost:0 --data-dir /tmp/try
                        a free port, shown in the line it prints
  odradek serve --set log.retention.hours=24 --set num.partitions=6
  odradek serve --listen 0.0.0.0:9092 --advertise broker.example:9092
                        behind a port mapping, where clients use another address
  odradek serve --data-dir new --release-version 4.0 --feature transaction.version=0
                        with the feature levels that a cluster of Kafka 4.0 begins with,
                        but for one; later kafka-features changes them

exit status: 0 after a clean stop, 1 when something is wrong, 2 for wrong usage."""

_USERS_ABOUT = """\
Users for SCRAM of a node that does not run: the first one, for example, who may then make
others with kafka-configs. A password comes from the variable ODRADEK_PASSWORD, from a file,
from stdin or from a prompt; only keys that follow from it are stored. A broker that runs
keeps its directories locked: use kafka-configs there. A start makes the users of the
variable ODRADEK_ADD_SCRAM, such as SCRAM-SHA-256=[name=admin,password=...], if they are missing."""

_USERS_EXAMPLES = """\
examples:
  odradek users add admin --mechanism SCRAM-SHA-256 --data-dir data
  odradek users add admin --mechanism SCRAM-SHA-512 --password-file secret server.properties
  odradek users list --data-dir data
  odradek users remove admin --mechanism SCRAM-SHA-256 --data-dir data

exit status: 0, or 1 when nothing was changed (one sentence says why)."""

_CHECK_ABOUT = """\
Check data directories, or single partitions in them, while no broker runs: every batch,
index, snapshot and checkpoint. One line a finding: damage, or a note of what a start
takes care of. Name all log.dirs of a broker together."""

_CHECK_EXAMPLES = """\
examples:
  odradek check data
  odradek check data/orders-0
  odradek check data --repair             removes what is beyond saving, no more, and says
                                          each byte and offset of it; makes indexes,
                                          snapshots and checkpoints anew
  odradek check /kafka/logs/orders-0      of Apache Kafka, too

exit status: 0, or 1 when something is damaged (with --repair: still damaged) or cannot be
checked."""

_IMPORT_ABOUT = """\
Take a topic that Apache Kafka wrote into a data directory of Odradek: the directories of
its partitions, or the log directories (all of log.dirs) that hold them as TOPIC-0, TOPIC-1
and so on. Every batch is checked before anything is visible; messages of old formats are
converted. Offsets, timestamps, the topic's id and the state of producers stay, and its
settings where one of the log directories has Kafka's own metadata (__cluster_metadata-0).
Kafka and Odradek must not run on these directories meanwhile."""

_IMPORT_EXAMPLES = """\
examples:
  odradek import-log /kafka/logs --topic orders --data-dir data
                        all of its partitions in that log directory
  odradek import-log /disk1/logs /disk2/logs --topic orders --data-dir data
                        of a Kafka with log.dirs=/disk1/logs,/disk2/logs
  odradek import-log backup/orders-0 backup/orders-1 --topic orders-2024 --data-dir data
  odradek import-log old --partition 0 --topic orders --data-dir data
  odradek import-log /kafka/logs --topic users --config retention.ms=-1
                        with another setting than Kafka had

The topic __consumer_offsets, which has what groups have committed, can be taken in too,
before any group has used the new broker.

exit status: 0, or 1 when nothing was taken in (one sentence says why)."""

_DUMP_ABOUT = """\
Show what files of a broker hold, without a broker: segments (.log), indexes, producer
snapshots, checkpoints, a partition's directory, or a whole data directory in summary,
without its empty partitions. Damaged files are shown up to the damage, with its place."""

_DUMP_EXAMPLES = """\
examples:
  odradek dump data
  odradek dump data --include-empty
  odradek dump data/orders-0 --records
  odradek dump data/__consumer_offsets-12 --records --json

exit status: 0, or 1 when something is damaged or cannot be read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Names of files may be bytes that are no text at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments[:1] == ["spark"]:
        return _spark(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.version:
        print(_version_line())
        return 0
    if options.command == "serve":
        return _serve(options)
    if options.command == "users":
        return _users(options)
    if options.command == "dump":
        return _dump(options)
    if options.command == "check":
        return _check(options)
    if options.command == "import-log":
        return _import_log(options)
    parser.print_help(sys.stderr)
    return 2


class _Layout(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal; argparse would import shutil, and all compressors with it, to learn that."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)


def _parser() -> argparse.ArgumentParser:
    layout: Any = _Layout
    parser = argparse.ArgumentParser(
        prog="odradek", description=_ABOUT, epilog=_EXAMPLES, formatter_class=layout, allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="print version, Python and compiled parts")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    serve = commands.add_parser(
        "serve",
        help="start a broker",
        description=_SERVE_ABOUT,
        epilog=_SERVE_EXAMPLES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    _add_serve_arguments(serve)
    _add_users(commands, layout)
    check = commands.add_parser(
        "check",
        help="check data directories, and repair them",
        description=_CHECK_ABOUT,
        epilog=_CHECK_EXAMPLES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    check.add_argument("paths", nargs="+", metavar="DIR", help="data directory, or directory of a partition")
    check.add_argument("--repair", action="store_true", help="make good what can be made good")
    check.add_argument("--json", action="store_true", help="print one JSON object a line")
    dump = commands.add_parser(
        "dump",
        help="show what files of a broker hold",
        description=_DUMP_ABOUT,
        epilog=_DUMP_EXAMPLES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    dump.add_argument("paths", nargs="+", metavar="DIR_OR_FILE", help="what to show")
    dump.add_argument("--records", action="store_true", help="show every record, not batches only")
    dump.add_argument(
        "--include-empty", action="store_true", help="show the empty partitions of a data directory, too"
    )
    dump.add_argument("--json", action="store_true", help="print one JSON object a line")
    import_log = commands.add_parser(
        "import-log",
        help="take a topic of Apache Kafka into a data directory",
        description=_IMPORT_ABOUT,
        epilog=_IMPORT_EXAMPLES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    _add_import_arguments(import_log)
    commands.add_parser("spark", help="jobs on Spark (pip install 'odradek[spark]')", add_help=False)
    return parser


def _add_serve_arguments(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("properties", nargs="?", metavar="server.properties", help="file with Kafka's options")
    serve.add_argument(
        "--listen", metavar="HOST:PORT", help="where to listen (default localhost:9092; port 0: a free one)"
    )
    serve.add_argument(
        "--data-dir", metavar="DIR", help="where the data is (default ./data, or option log.dirs)"
    )
    serve.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="the address to tell clients (default: the one at which each arrived)",
    )
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="set one option; may be given many times",
    )
    serve.add_argument(
        "--cluster-id",
        metavar="ID",
        help="the cluster of a new data directory (default: that of the others or of the controllers, else "
        "a new one)",
    )
    serve.add_argument(
        "--release-version",
        metavar="VERSION",
        help="begin a new data directory with the feature levels of a release of Kafka, such as 4.0",
    )
    serve.add_argument(
        "--feature",
        action="append",
        default=[],
        dest="features",
        metavar="NAME=LEVEL",
        help="begin a new data directory with this level; may be given many times",
    )
    serve.add_argument(
        "--log-level",
        default="info",
        type=str.lower,
        choices=("debug", "info", "warning", "error"),
        help="which events go to stderr, a line each (default info)",
    )


def _add_users(commands: Any, layout: Any) -> None:
    users = commands.add_parser(
        "users",
        help="users for SCRAM of a node that does not run",
        description=_USERS_ABOUT,
        epilog=_USERS_EXAMPLES,
        formatter_class=layout,
        allow_abbrev=False,
    )
    actions = users.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("add", "make a user, or give it another password"),
        ("remove", "remove one"),
        ("list", "show all"),
    ):
        action = actions.add_parser(
            name, help=about, description=about, formatter_class=layout, allow_abbrev=False
        )
        if name != "list":
            action.add_argument("name", metavar="NAME", help="name of the user")
            action.add_argument(
                "--mechanism",
                required=True,
                choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
                help="of the password",
            )
        action.add_argument(
            "properties", nargs="?", metavar="server.properties", help="file with Kafka's options"
        )
        action.add_argument(
            "--data-dir", metavar="DIR", help="where the data is (default ./data, or option log.dirs)"
        )
        if name == "add":
            action.add_argument("--password-file", metavar="FILE", help="file with the password; -: stdin")
            action.add_argument(
                "--iterations",
                type=int,
                default=4096,
                metavar="N",
                help="of the hash, 4096 to 16384 (default 4096)",
            )


def _add_import_arguments(import_log: argparse.ArgumentParser) -> None:
    import_log.add_argument(
        "paths", nargs="+", metavar="DIR", help="log directory, or directory of a partition"
    )
    import_log.add_argument(
        "--topic", metavar="TOPIC", help="what the topic is called, and is to be called here"
    )
    import_log.add_argument(
        "--partition",
        action="append",
        default=[],
        type=int,
        dest="partitions",
        metavar="N",
        help="number of a partition directory, once for each DIR (default: what its name ends with)",
    )
    import_log.add_argument(
        "--data-dir", default="./data", metavar="DIR", help="where Odradek has its data (default ./data)"
    )
    import_log.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="NAME=VALUE",
        help="set one option of the topic; may be given many times",
    )
    import_log.add_argument(
        "--move",
        action="store_true",
        help="remove the source when the topic is there (links, where that is possible)",
    )


def _version_line() -> str:
    import platform
    from importlib.util import find_spec

    uvloop = "yes" if find_spec("uvloop") else "no"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"odradek {__version__} ({python}; uvloop: {uvloop})"


# --- serve ---


def _serve(options: argparse.Namespace) -> int:
    # What is imported and loaded from here on is no garbage; looking for some costs a tenth of the start.
    # `main_loop` enables the search again when the broker is ready.
    gc.disable()
    from odradek.config.broker_config import ConfigError, load
    from odradek.server.feature_levels import read_levels

    try:
        config = load(
            options.properties,
            environ=os.environ,
            sets=options.sets,
            listen=options.listen,
            data_dir=options.data_dir,
            advertise=options.advertise,
            cluster_id=options.cluster_id,
            first_levels=read_levels(options.features, options.release_version),
        )
        _log_to_stderr(options.log_level)
        _log_settings(config)
        # Everything heavy comes with this import; a wrong option has been told by now.
        from odradek.server.main_loop import run

        status = run(config, on_ready=_tell_ready)
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


def _tell_ready(server: "BrokerServer") -> None:
    """One line that people read and scripts wait for; addresses with their real ports."""
    addresses = []
    for _, host, port in server.addresses:
        host = host or "0.0.0.0"
        addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    print(
        f"odradek {__version__} ready on {', '.join(addresses)} "
        f"(node {server.node_id}, cluster {server.cluster_id}, data {','.join(server.data_directories)})",
        flush=True,
    )
    path = os.environ.get("ODRADEK_ADDRESS_FILE")
    if path:
        from odradek.server.health import write_address

        try:
            with_tls = {listener.name for listener in server.listeners if listener.tls is not None}
            write_address(path, server.addresses, with_tls)
        except OSError as error:
            print(f"odradek: ODRADEK_ADDRESS_FILE={path} cannot be written: {error}", file=sys.stderr)


def _log_to_stderr(level: str) -> None:
    import logging

    class OneLine(logging.Formatter):
        """An event is one line; the traceback of a failure is there with --log-level debug."""

        def formatException(self, ei: Any) -> str:
            if level == "debug":
                return super().formatException(ei)
            return f"  {ei[0].__name__}: {ei[1]}"

        def format(self, record: logging.LogRecord) -> str:
            text = super().format(record)
            return text if level == "debug" else " ".join(text.splitlines())

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _log_settings(config: "BrokerConfig") -> None:
    import logging

    logger = logging.getLogger("odradek")
    for warning in config.warnings:
        logger.warning("%s", warning)
    if config.without_effect:
        logger.info("these options have no effect here: %s", ", ".join(config.without_effect))


# --- users ---


def _users(options: argparse.Namespace) -> int:
    from odradek.config import first_users
    from odradek.config.broker_config import ConfigError, load
    from odradek.server.security import users

    try:
        config = load(options.properties, environ=os.environ, data_dir=options.data_dir)
        if options.action == "list":
            for name, mechanism, iterations in users.listed(config):
                print(f"{name!r} {mechanism} iterations={iterations}")
        elif options.action == "remove":
            if not users.remove(config, options.name, options.mechanism):
                raise ConfigError(f"there is no user {options.name!r} with {options.mechanism}.")
        else:
            password = users.read_password(options.password_file, sys.stdin)
            user = first_users.checked_user(options.name, options.mechanism, password, options.iterations)
            users.add(config, user)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    return 0


# --- dump ---


def _dump(options: argparse.Namespace) -> int:
    import os

    from odradek.offline.dump import dump

    try:
        return dump(
            options.paths,
            records=options.records,
            as_json=options.json,
            out=sys.stdout,
            include_empty=options.include_empty,
        )
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain once more while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# --- check and import-log ---


def _check(options: argparse.Namespace) -> int:
    from odradek.offline.check import CannotCheck, check

    try:
        status = check(
            options.paths, repair=options.repair, as_json=options.json, out=sys.stdout, terminal=_terminal()
        )
        sys.stdout.flush()
        return status
    except CannotCheck as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return _output_failed(error)


def _import_log(options: argparse.Namespace) -> int:
    from odradek.offline.import_log import CannotImport, import_log

    configs = {}
    for text in options.configs:
        name, equals, value = text.partition("=")
        if not equals:
            print(f"odradek: --config {text} is not NAME=VALUE.", file=sys.stderr)
            return 1
        configs[name] = value
    try:
        import_log(
            options.paths,
            topic=options.topic,
            data_dir=options.data_dir,
            partitions=options.partitions,
            configs=configs,
            move=options.move,
            out=sys.stdout,
            terminal=_terminal(),
        )
        sys.stdout.flush()
    except CannotImport as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return _output_failed(error)
    return 0


def _output_failed(error: OSError) -> int:
    """The reader (head, less) has seen enough, or the disk of a file is full."""
    if not isinstance(error, BrokenPipeError):
        print(f"odradek: the output cannot be written: {error.strerror or error}.", file=sys.stderr)
    # Python would complain once more while it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


# --- spark ---


def _spark(arguments: Sequence[str]) -> int:
    from odradek.spark.cli import main

    return main(arguments, layout=_Layout)


def _terminal() -> TextIO | None:
    """Where to show progress: a person's terminal."""
    return sys.stderr if sys.stderr.isatty() else None
