"""Apache Kafka itself, run from its Maven jars: the broker that we are compared with, and its tools.

`Kafka` has the same few methods as `odradek.Broker(process=True)`, so that a test takes either. Only
processes that were started here are ever signalled.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol

from compat_tests.class_data import class_data
from compat_tests.clients import PATIENCE_SECONDS
from compat_tests.kit.java import SMALL_JVM, compiled, java_version
from compat_tests.kit.tool_server import ToolServers
from odradek.embedding.apache_kafka import KafkaPrograms, format_directory
from odradek.embedding.free_port import free_port
from tools import environment

PREVIOUS = "4.3.1"
CURRENT = os.environ.get("ODRADEK_KAFKA", "4.4.0")
"""The release that we are compared with, and whose tools and clients run."""
OLDER = "3.9.2"
"""The last line that speaks Produce 0 to 2 and Fetch 0 to 3."""
ARCHIVED = (CURRENT, PREVIOUS, OLDER)
"""Releases that start fast."""

BROKER_JVM = ["-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]
"""For a broker that serves a test: a quick start matters more than the last bit of speed."""

START_SECONDS = 100
"""So long a broker may take until it answers, on a machine that is busy with tests."""

SHOWN_LENGTH = 3000
"""Characters of a log, its last ones."""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised_controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
{more}
"""

ONLY_CURRENT = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.streams.initial.rebalance.delay.ms": "3000",
}


def class_path(version: str = CURRENT) -> str:
    return f"{environment.jars(f'kafka-{version}')}/*"


class Programs(KafkaPrograms):
    """Kafka's programs; the tools among them run in a resident virtual machine."""

    def run(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run_resident(self, ["", main_class, *arguments])


def programs(version: str = CURRENT, *, is_fast_to_start: bool = True) -> Programs:
    return Programs("java", class_path(version), fast_start(version) if is_fast_to_start else ())


@functools.cache
def fast_start(version: str) -> tuple[str, ...]:
    """Options of the virtual machine. With them a broker starts in 2.1 s of processor time instead of 3.5, a
    tool in 0.65 s instead of 1.0. None for the oldest versions."""

    def run(options: tuple[str, ...]) -> None:
        with Kafka(version, jvm=[*BROKER_JVM, *options], is_fast_to_start=False) as kafka:
            kafka.stop()

    return class_data(f"kafka-{version}", class_path(version), run) if version in ARCHIVED else ()


def archive_for(path: str) -> tuple[str, ...]:
    """The options of `fast_start` for programs of ours, which are at the end of the class path."""
    releases = (version for version in ARCHIVED if path.startswith(f"{class_path(version)}:"))
    return next((fast_start(version) for version in releases), ())


def client_class_path(version: str = CURRENT) -> str:
    """Of Kafka's client alone: a JVM starts in half the time when it loads no logging."""
    names = ("kafka-clients", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
    is_client_alone = f"kafka-clients-{version}" in environment.JARS
    folder = environment.jars(f"kafka-clients-{version}" if is_client_alone else f"kafka-{version}")
    return ":".join(str(path) for name in names for path in sorted(folder.glob(f"{name}-[0-9]*.jar")))


def wait_until_open(
    port: int, process: subprocess.Popen[bytes], log: pathlib.Path, seconds: float = START_SECONDS
) -> None:
    """Returns when something listens; raises with the end of the log when the process dies or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(
                f"the broker ended with status {process.returncode}:\n{log.read_text()[-SHOWN_LENGTH:]}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            # Where nobody listens, the kernel may give a connection just that port: it is one with itself.
            if probe.getsockname() != probe.getpeername():
                return
        time.sleep(0.05)
    raise TimeoutError(
        f"nothing listens on port {port} after {seconds} s:\n{log.read_text()[-SHOWN_LENGTH:]}"
    )


def end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Sends the signal; kills the process when it has not ended after 30 s."""
    process.send_signal(how)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def older_logging(directory: pathlib.Path, level: str) -> str:
    """The option of the virtual machine with which Kafka before 4.0 tells anything; writes a file there."""
    config = directory / "log4j.properties"
    config.write_text(
        f"log4j.rootLogger={level}, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n\n"
    )
    return f"-Dlog4j.configuration=file:{config}"


class Host(Protocol):
    """A virtual machine for many brokers."""

    def format(self, *arguments: object) -> object: ...
    def start(self, config: pathlib.Path) -> None: ...
    def stop(self, config: pathlib.Path) -> None: ...
    def log(self) -> str: ...


class Kafka:
    """One combined KRaft node of Apache Kafka with a directory of its own.

    `properties` are added to its server.properties, `formatting` to the arguments with which its directory is
    formatted, `jvm` are the options of the virtual machine, `prefix` goes before the command (taskset),
    `parent` is where its directory is made, `is_fast_to_start` whether it has the options of `fast_start`,
    which nobody has by default. With a `host` it has no virtual machine of its own: it cannot be killed, only
    stopped, and `jvm` and `prefix` mean nothing. Use as a context manager, or start() and stop().
    """

    def __init__(
        self,
        version: str = CURRENT,
        properties: Mapping[str, str] | None = None,
        *,
        formatting: Sequence[str] = (),
        jvm: Sequence[str] = BROKER_JVM,
        prefix: Sequence[str] = (),
        parent: pathlib.Path | None = None,
        is_fast_to_start: bool = True,
        host: Host | None = None,
    ) -> None:
        self.version = version
        self._is_fast_to_start = is_fast_to_start
        self.port = free_port()
        self.controller_port = free_port()
        self._properties = dict(properties or {})
        self._jvm, self._prefix = jvm, prefix
        self._formatting = formatting
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"kafka-{version}-", dir=parent))
        self.data_dir = self.directory / "data"
        self._log = self.directory / "broker.log"
        self._config = self.directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._host, self._is_hosted = host, False

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()  # Nobody reads its directory any more, and to shut down takes it seconds.
        if error is not None:
            error.add_note(f"Kafka's log ended with:\n{self._log_text()[-SHOWN_LENGTH:]}")
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the broker (formats its directory at first) and returns when it answers."""
        if self._host is None:
            self.launch()
            self.wait_until_ready()
        else:
            self._prepare()
            self._is_hosted = True
            self._host.start(self._config)

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        assert self._host is None, "a host's brokers have no process"
        self._prepare()
        jvm = (*self._jvm, *self._logging())
        kafka = programs(self.version, is_fast_to_start=self._is_fast_to_start)
        command = [*self._prefix, *kafka.command("kafka.Kafka", str(self._config), jvm=jvm)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def _prepare(self) -> None:
        if not self._config.exists():
            self._format(self._config)

    def wait_until_ready(self) -> None:
        """Returns when the launched process answers."""
        assert self._process is not None, "the broker does not run"
        wait_until_open(self.port, self._process, self._log)

    def stop(self) -> None:
        """Asks the broker to shut down; kills it when it has not done so after 30 s."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as when the machine's memory runs out."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops the broker if it runs, then starts it on the same port and data."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, how)
        is_hosted, self._is_hosted = self._is_hosted, False
        if is_hosted:
            assert self._host is not None
            self._host.stop(self._config)

    def _log_text(self) -> str:
        if self._host is not None:
            return self._host.log()
        return self._log.read_text() if self._log.exists() else ""

    def _logging(self) -> list[str]:
        if self.version != OLDER:
            return ["-Dlog4j2.level=WARN"]
        return [older_logging(self.directory, "WARN")]

    def _format(self, config: pathlib.Path) -> None:
        # Here: with it come storage and coordinators, which a client's process has no use for.
        from odradek.server.metadata.meta_properties import new_id

        current = self.version != OLDER
        more = {**(ONLY_CURRENT if current else {}), **self._properties}
        text = PROPERTIES.format(
            port=self.port,
            controller=self.controller_port,
            voters=f"1@127.0.0.1:{self.controller_port}",
            advertised_controller=f",CONTROLLER://127.0.0.1:{self.controller_port}" if current else "",
            data=self.data_dir,
            more="\n".join(f"{name}={value}" for name, value in more.items()),
        )
        # 4.x is formatted as a standalone quorum, 3.9 with a fixed list of voters.
        unwanted = "controller.quorum.voters" if current else "controller.quorum.bootstrap.servers"
        config.write_text("".join(line for line in text.splitlines(True) if not line.startswith(unwanted)))
        arguments = [*(["--standalone"] if current else []), *self._formatting]
        self._format_directories(config, arguments, new_id(os.urandom))

    def _format_directories(self, config: pathlib.Path, arguments: Sequence[str], cluster_id: str) -> None:
        try:
            if self._host is None:
                kafka = programs(self.version, is_fast_to_start=self._is_fast_to_start)
                format_directory(kafka, cluster_id, config, *arguments)
            else:
                self._host.format("-t", cluster_id, "-c", config, *arguments)
        except BaseException:
            config.unlink()  # The next start is to try it again.
            raise


CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"
"""Its class since Kafka 4.4; `kafka_tool` and `tool_command` find it in older releases, too."""


def _class_in(version: str, main_class: str) -> str:
    is_moved = main_class == CONFIG_COMMAND and version in (PREVIOUS, OLDER)
    return "kafka.admin.ConfigCommand" if is_moved else main_class


def kafka_tool(
    main_class: str,
    *arguments: str,
    version: str = CURRENT,
    stdin: str | bytes | None = None,
    timeout_seconds: float = PATIENCE_SECONDS,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's Java programs to its end, in a resident virtual machine; its output is text.

    Raises AssertionError with both outputs when it ends with another status than 0, unless `check` is false;
    subprocess.TimeoutExpired when it takes longer.
    """
    main_class = _class_in(version, main_class)
    given = stdin.encode() if isinstance(stdin, str) else stdin or b""
    if has_resident_tools(version):
        finished = _run_resident(programs(version), ["", main_class, *arguments], given, timeout_seconds)
    else:
        command = tool_command(main_class, *arguments, version=version)
        finished = _as_text(
            subprocess.run(command, input=given, capture_output=True, timeout=timeout_seconds)
        )
    if check:
        _assert_success(finished)
    return finished


def run_java(
    *sources: pathlib.Path,
    arguments: Sequence[str] = (),
    version: str = CURRENT,
    stdin: str = "",
    timeout_seconds: float = 100,
) -> str:
    """Compiles sources of ours against Kafka's jars, once, and runs the first to its end, where `kafka_tool`
    runs Kafka's; what it prints. Raises AssertionError when it fails."""
    folder = compiled(class_path(version), *sources)
    words = [str(folder), sources[0].stem, *arguments]
    finished = _run_resident(programs(version), words, stdin.encode(), timeout_seconds)
    _assert_success(finished)
    return finished.stdout


WITHOUT_EXIT = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2")
"""Kafka's tools that end the process where later ones ask a class of Kafka to do it."""
JAVA_WITHOUT_SECURITY_MANAGER = 24
"""Until then a virtual machine could refuse that."""


def has_resident_tools(version: str) -> bool:
    return version not in WITHOUT_EXIT or java_version() < JAVA_WITHOUT_SECURITY_MANAGER


@functools.cache
def _tool_servers(kafka: KafkaPrograms) -> ToolServers:
    refuses_exits = any(kafka.class_path == class_path(version) for version in WITHOUT_EXIT)
    manager = ("-Djava.security.manager=allow",) if refuses_exits else ()
    return ToolServers(kafka.class_path, (*kafka.options, *manager))


def _run_resident(
    kafka: KafkaPrograms, words: Sequence[str], given: bytes = b"", timeout_seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    return _as_text(_tool_servers(kafka).run(words, given, timeout_seconds=timeout_seconds))


def _as_text(finished: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    out, errors = (text.decode().replace("\r\n", "\n") for text in (finished.stdout, finished.stderr))
    return subprocess.CompletedProcess(finished.args, finished.returncode, out, errors)


def _assert_success(finished: subprocess.CompletedProcess[str]) -> None:
    if finished.returncode != 0:
        raise AssertionError(
            f"{' '.join(finished.args)} ended with status {finished.returncode}:\n"
            f"{finished.stdout}\n{finished.stderr}"
        )


def tool_command(
    main_class: str, *arguments: str, version: str = CURRENT, jvm: Sequence[str] = ()
) -> list[str]:
    return programs(version).command(_class_in(version, main_class), *arguments, jvm=(*SMALL_JVM, *jvm))
