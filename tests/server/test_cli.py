"""The command line as a person or a script meets it; `serve` runs as a process of its own."""

import builtins
import contextlib
import errno
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

import odradek
from odradek import __version__
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.commands import main as cli
from odradek.server.process.log_output import log_to_stderr
from odradek.wire.frames import request_frame
from odradek.wire.messages import create_topics, describe_groups, fetch, find_coordinator, join_group
from tests.client.topics import create_topic, produce
from tests.config.config_sources import KAFKAS_OWN_FILE
from tests.raw_client import RawClient
from tests.server.scrape import until

PATIENCE_S = 60
READY = re.compile(
    r"odradek (\S+) ready on ([^\s,]+):(\d+)(?:, \S+)* \(node (\d+), cluster (\S{22}), data ([^,]+)"
    r"(?:, controller \S+)?\)\n"
)
API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000007 0000")

FETCH = fetch.FetchRequest(
    max_wait_ms=60_000,
    min_bytes=1,
    topics=[fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition_max_bytes=1000)])],
)
JOIN = join_group.JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
)


def environment(**more):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


@pytest.fixture
def serve(tmp_path):
    """Starts `odradek serve` on a free port; gives the process and what its ready line says."""
    started = []

    def start(*arguments, **environ):
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "serve", *arguments],
            env=environment(**environ),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert select.select([process.stdout], [], [], PATIENCE_S)[0], "no ready line"
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready, line or process.communicate()[1]
        return process, ready

    yield start
    for process in started:
        process.kill()
        process.communicate()


def stop(process, number=signal.SIGTERM):
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    return process.returncode, stderr


def answer(port):
    with RawClient(port, timeout_s=PATIENCE_S) as client:
        client.send(API_VERSIONS_V0)
        return client.receive_frame()


def run(capsys, *arguments):
    """Exit status, stdout and stderr of a command that does not serve."""
    try:
        status = cli.main(arguments)
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# --- serve ---


def test_a_broker_says_that_it_is_ready_answers_and_stops_cleanly(serve, tmp_path):
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    version, host, port, node, cluster, data = ready.groups()
    assert (version, host, node, data) == (__version__, "127.0.0.1", "1", "kept")
    assert answer(int(port))[:4] == bytes.fromhex("00000007")
    assert stop(process)[0] == 0
    # The ids are made once: the next start has the same cluster.
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    assert ready[5] == cluster
    assert stop(process, signal.SIGINT)[0] == 0
    assert (tmp_path / "kept" / "meta.properties").exists()


def test_a_start_says_how_the_last_run_ended(serve):
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    with Cluster(ClientSettings(f"127.0.0.1:{ready[3]}")) as cluster:
        create_topic(cluster, 3, "t")
        produce(cluster, "t", 1, [b"v"] * 3)
    told = stop(process)[1]
    assert "clean stop" not in told, "there was none"
    assert told.endswith(" INFO stopped cleanly\n")
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    with Cluster(ClientSettings(f"127.0.0.1:{ready[3]}")) as cluster:
        produce(cluster, "t", 1, [b"v"] * 3)
    told = stop(process, signal.SIGKILL)[1]
    assert " INFO after a clean stop: 3 partitions\n" in told
    assert "stopped cleanly" not in told
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    assert " INFO after an unclean stop: 1 partition recovered, 0 bytes cut\n" in stop(process)[1]


def test_a_start_says_how_many_bytes_it_cut(serve, tmp_path):
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    with Cluster(ClientSettings(f"127.0.0.1:{ready[3]}")) as cluster:
        create_topic(cluster, 1, "t")
        produce(cluster, "t", 0, [b"v"] * 3)
    stop(process, signal.SIGKILL)
    with open(tmp_path / "kept" / "t-0" / ("0" * 20 + ".log"), "ab") as file:
        file.write(bytes(17))
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "kept")
    assert " INFO after an unclean stop: 1 partition recovered, 17 bytes cut\n" in stop(process)[1]


@pytest.mark.parametrize(
    ("listener", "level"), [("PLAINTEXT://127.0.0.1:0", "INFO"), ("PLAINTEXT://0.0.0.0:0", "WARNING")]
)
def test_a_broker_without_security_says_so(serve, listener, level):
    process, ready = serve("--set", f"listeners={listener}")
    (line,) = (one for one in stop(process)[1].splitlines() if "everybody" in one)
    host = listener.removeprefix("PLAINTEXT://").removesuffix(":0")
    assert line.endswith(
        f" {level} no login and no ACLs: everybody who can connect to PLAINTEXT ({host}:{ready[3]}) may do "
        "everything (docs/security.md)"
    )


def test_with_an_authorizer_nobody_may_do_everything(serve):
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    process, _ = serve("--listen", "127.0.0.1:0", "--set", f"authorizer.class.name={name}")
    assert "everybody" not in stop(process)[1]


def test_a_broker_stops_cleanly_while_clients_wait(serve, tmp_path):
    """One waits for records, another for members of its group to come, both longer than the stop may take."""
    process, ready = serve(
        *("--listen", "127.0.0.1:0", "--data-dir", "data"),
        *("--set", "group.initial.rebalance.delay.ms=60000", "--set", "offsets.topic.num.partitions=1"),
    )
    clients = [RawClient(int(ready[3]), timeout_s=PATIENCE_S) for _ in range(3)]
    reading, joining, asking = clients
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    asking.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    deadline = time.monotonic() + PATIENCE_S
    while asking.ask(find_coordinator.FindCoordinatorRequest(key="g"), 2).error_code:
        assert time.monotonic() < deadline, "no coordinator"
    joining.send_request(JOIN, 2)
    while asking.ask(describe_groups.DescribeGroupsRequest(groups=["g"]), 0).groups[0].group_state != (
        "PreparingRebalance"
    ):
        assert time.monotonic() < deadline, "nobody joins"
    # Both requests are there when the first is answered.
    reading.send(API_VERSIONS_V0, request_frame(FETCH, 11, 1, "tests"))
    assert reading.receive_frame()
    assert not select.select([reading.socket, joining.socket], [], [], 0)[0], "nobody has to wait"

    status, told = stop(process)
    assert status == 0
    assert told.endswith("INFO stopped cleanly\n")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    for client in clients:
        client.read_to_end()
        client.close()


def test_a_second_ctrl_c_does_not_spoil_the_stop_that_is_under_way(serve, tmp_path):
    process, ready = serve("--listen", "127.0.0.1:0", "--data-dir", "data")
    port = int(ready[3])
    deadline = time.monotonic() + PATIENCE_S
    # A client that takes no answers is waited for, so the stop takes a moment.
    with RawClient(port, timeout_s=PATIENCE_S, receive_buffer_bytes=4096) as deaf:
        deaf.send(*[API_VERSIONS_V0] * 20_000)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                answer_or_refusal(port)
        status, told = stop(process, signal.SIGINT)
        assert status == 0
        assert told.endswith("INFO stopped cleanly\n")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def answer_or_refusal(port):
    with contextlib.suppress(EOFError):
        answer(port)


def closed_pipe():
    ours, theirs = os.pipe()
    os.close(ours)
    return open(theirs, "w")


def full_disk():
    return open("/dev/full", "w")


@pytest.mark.parametrize(
    ("output", "told"),
    [(closed_pipe, ""), (full_disk, "odradek: the output cannot be written: the disk is full.\n")],
)
def test_a_broker_whose_ready_line_nobody_reads_serves(tmp_path, output, told):
    address = tmp_path / "address"
    command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    command += ["--log-level", "warning"]
    with output() as stdout:
        process = subprocess.Popen(
            command,
            env=environment(ODRADEK_ADDRESS_FILE=str(address)),
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    until(address.exists, bool)
    assert answer(int(re.findall(r":(\d+)", address.read_text())[0]))[:4] == bytes.fromhex("00000007")
    assert stop(process) == (0, told)


def test_a_file_the_environment_and_set_reach_the_broker(serve, tmp_path):
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\nlog.dirs=one\nlog.retension.ms=5\n"
    )
    given, ruled_over = "4L6g3nShT-eMCtK--X86sw", "5L6g3nShT-eMCtK--X86sw"
    process, ready = serve(
        *("server.properties", "--set", "log.dirs=two", "--cluster-id", given),
        KAFKA_NODE_ID="7",
        CLUSTER_ID=ruled_over,
    )
    assert (ready[4], ready[5], ready[6]) == ("7", given, "two")
    _, stderr = stop(process)
    lines = stderr.splitlines()
    assert any("Did you mean log.retention.ms?" in line for line in lines)
    assert not [line for line in lines if "no effect here" in line]


def test_the_file_that_kafka_ships_starts_a_broker_unchanged(serve, tmp_path):
    # Port and directory are the test's: those of the file may be in use on this machine.
    process, ready = serve(str(KAFKAS_OWN_FILE), "--listen", "127.0.0.1:0", "--data-dir", "data")
    assert answer(int(ready[3]))[:4] == bytes.fromhex("00000007")
    _, stderr = stop(process)
    assert "WARNING" not in stderr
    (told,) = (line for line in stderr.splitlines() if "no effect here" in line)
    assert "process.roles, controller.quorum.bootstrap.servers, controller.listener.names" in told


def test_the_variables_of_kafkas_container_start_a_broker(serve):
    process, ready = serve(
        CLUSTER_ID="4L6g3nShT-eMCtK--X86sw",
        KAFKA_NODE_ID="1",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_LISTENERS="CONTROLLER://:0,PLAINTEXT_HOST://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=(
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
        ),
        KAFKA_INTER_BROKER_LISTENER_NAME="PLAINTEXT",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@broker:29093",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        KAFKA_LOG_DIRS="logs",
        KAFKA_HEAP_OPTS="-Xmx1g",
    )
    assert (ready[5], ready[6]) == ("4L6g3nShT-eMCtK--X86sw", "logs")
    assert answer(int(ready[3]))[:4] == bytes.fromhex("00000007")
    (warning,) = (line for line in stop(process)[1].splitlines() if "WARNING" in line)
    assert "everybody who can connect" in warning
    assert "CONTROLLER (0.0.0.0" in warning


def test_the_log_level_decides_what_a_broker_tells(serve):
    process, _ = serve(
        *("--listen", "127.0.0.1:0", "--data-dir", "data", "--log-level", "Warning"),
        *("--set", "process.roles=broker"),
        KAFKA_LOG_RETENSION_MS="5",  # of a variable that is no option one is only warned
    )
    stderr = stop(process)[1]
    warnings = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING \S.*")
    assert stderr
    assert all(warnings.fullmatch(line) for line in stderr.splitlines())


@pytest.fixture
def serve_in_vain(capsys, monkeypatch, tmp_path):
    """Runs `odradek serve` here, which has to end at once; gives the one line that it leaves."""
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def serve(*arguments):
        status, out, err = run(capsys, "serve", *arguments)
        assert (status, out) == (1, ""), err
        return sentence(err)

    return serve


def sentence(stderr):
    (line,) = stderr.splitlines()
    assert line.startswith("odradek: ")
    return line


ON_DATA = ("--listen", "127.0.0.1:0", "--data-dir", "data")


def test_a_taken_port_or_directory_is_one_sentence_and_status_1(serve, serve_in_vain):
    _, ready = serve(*ON_DATA)
    assert ready[3] in serve_in_vain("--listen", f"127.0.0.1:{ready[3]}", "--data-dir", "other")
    assert "log.dirs" in serve_in_vain(*ON_DATA)


@pytest.fixture(scope="module")
def used_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("used") / "data"
    with odradek.Broker(data_dir=directory):
        pass
    return directory


@pytest.fixture
def written(used_directory, tmp_path):
    """A data directory that a broker has used."""
    return shutil.copytree(used_directory, tmp_path / "data")


@pytest.mark.parametrize("what", ["", "meta.properties", ".lock", f"__cluster_metadata-0/{0:020}.log"])
def test_what_may_not_be_written_is_one_sentence_and_status_1(written, tmp_path, what):
    command = [sys.executable, "-m", "odradek"]
    if os.geteuid() == 0:
        bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if shutil.which("setpriv") is None or subprocess.run([*bound, "true"], check=False).returncode:
            pytest.skip("modes do not bind root, and setpriv is not there or not allowed")
        command = [*bound, *command]
    path = written / what
    mode = path.stat().st_mode
    path.chmod(0o555 if path.is_dir() else 0o000 if what == "meta.properties" else 0o444)
    try:
        ended = subprocess.run(
            [*command, "serve", *ON_DATA],
            env=environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        path.chmod(mode)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    line = sentence(ended.stderr)
    folder, _, name = what.rpartition("/")
    assert folder or "log.dirs" in line
    assert line.endswith(".")
    assert os.path.join("data", folder or name).rstrip("/") in line
    assert "change its owner or mode" in line or "Permission denied" in line


def test_a_data_directory_below_a_file_is_one_sentence_and_status_1(serve_in_vain, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "data").symlink_to("file/below")
    line = serve_in_vain(*ON_DATA)
    assert "data (log.dirs)" in line
    assert line.endswith(".")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("module", "name", "end"),
    [(os, "mkdir", "data"), (builtins, "open", "data/meta.properties.tmp"), (os, "open", "data/.lock")],
)
def test_a_system_that_refuses_is_one_sentence_and_status_1(
    serve_in_vain, monkeypatch, number, module, name, end
):
    """The bytes of SQLite do not come by here."""
    real = getattr(module, name)

    def refuse(path, *arguments, **keywords):
        if str(path).endswith(end):
            raise OSError(number, os.strerror(number), path)
        return real(path, *arguments, **keywords)

    with monkeypatch.context() as system:
        system.setattr(module, name, refuse)
        line = serve_in_vain(*ON_DATA)
    assert end.removesuffix(".tmp") in line
    assert "log.dirs" in line
    assert os.strerror(number) in line


def test_a_directory_that_was_mounted_read_only_is_told_as_such(serve_in_vain, written, monkeypatch):
    may, told = os.access, os.statvfs

    def statvfs(path):
        found = list(told(path))
        found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    with monkeypatch.context() as system:
        system.setattr(
            os, "access", lambda path, mode: not (path == "data" and mode & os.W_OK) and may(path, mode)
        )
        system.setattr(os, "statvfs", statvfs)
        line = serve_in_vain(*ON_DATA)
    assert line.endswith("Directory data of log.dirs cannot be written: its file system is read-only.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "num.partition=3"], "Did you mean num.partitions?"),
        (["--set", "num.partitions=many"], "num.partitions must be a whole number"),
        (["--set", "listeners=SSL://:9093"], "ssl.keystore.location is missing"),
        (["no-such-file.properties"], "no-such-file.properties cannot be read"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_status_1(serve_in_vain, arguments, words):
    assert words in serve_in_vain(*arguments)


# --- What is told on stderr ---


@pytest.fixture
def tell(capsys):
    """What stands on stderr after a failure was logged with its traceback at each level."""

    def tell_at(level):
        log_to_stderr(level)
        try:
            raise OSError("no\nsuch disk")
        except OSError as error:
            failure = error
        logger = logging.getLogger("odradek.tests")
        logger.debug("looked\ntwice")
        for shown in ("info", "warning", "error"):
            getattr(logger, shown)("an event of level %s", shown, exc_info=failure, stack_info=True)
        return capsys.readouterr()

    return tell_at


@pytest.mark.parametrize(("level", "shown"), [("info", 3), ("warning", 2), ("error", 1)])
def test_an_event_is_one_line_also_where_something_was_raised(tell, level, shown):
    told = tell(level)
    assert told.out == ""
    lines = told.err.splitlines()
    levels = ("INFO", "WARNING", "ERROR")[-shown:]
    assert [line.split()[2] for line in lines] == list(levels)
    for line, name in zip(lines, levels, strict=True):
        assert f" {name} an event of level {name.lower()} " in line
        assert " OSError: no such disk" in line


def test_the_traceback_of_a_failure_is_there_for_who_asks_for_all(tell):
    lines = tell("debug").err.splitlines()
    assert any(line.endswith(" DEBUG looked") for line in lines)
    assert "twice" in lines
    assert lines.count("Traceback (most recent call last):") == 3
    assert lines.count("OSError: no") == 3


# --- The rest ---


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["serve", "--port", "1"],
        ["serve", "--log-level", "loud"],
        ["dump"],
        ["check"],
        ["import-log", "--topic", "t"],
        ["import-log", "d", "--topic", "t", "--partition", "one"],
    ],
)
def test_a_usage_that_is_not_understood_is_status_2(capsys, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "usage: odradek" in err


@pytest.mark.parametrize("command", [[], ["serve"], ["dump"], ["check"], ["import-log"]])
def test_help_has_examples_and_fits_a_terminal(capsys, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "92")
    status, out, _ = run(capsys, *command, "--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 92
    assert "examples:\n  odradek " in out


def test_the_version_names_python_and_the_event_loop(capsys):
    status, out, _ = run(capsys, "--version")
    assert status == 0
    assert re.fullmatch(rf"odradek {re.escape(__version__)} \(CPython 3\.\S+; uvloop: \w+\)\n", out)


def test_the_version_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from odradek.commands.main import main\n"
        "main(['--version'])\n"
        "heavy = {'asyncio', 'logging', 'dataclasses', 'sqlite3', 'uvloop', 'odradek.config.options'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"


def test_dump_tells_damage_by_its_status(capsys, tmp_path):
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    assert run(capsys, "dump", path) == (
        0,
        "recovery-point-offset-checkpoint topic=orders partition=0 offset=5\n",
        "",
    )
    status, out, _ = run(capsys, "dump", path, str(tmp_path / "missing"), "--json")
    assert status == 1
    assert out.splitlines()[0].startswith('{"what": "recovery-point-offset-checkpoint"')


def test_dump_shows_empty_partitions_when_asked(capsys, tmp_path):
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").touch()
    status, out, _ = run(capsys, "dump", str(tmp_path))
    assert (status, out.splitlines()[1:]) == (0, ["empty-partitions left_out=1"])
    status, out, _ = run(capsys, "dump", str(tmp_path), "--include-empty")
    assert out.splitlines()[1].startswith("partition topic=orders partition=0 segments=1 ")


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n20000\n" + "".join(f"orders {index} 5\n" for index in range(20_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", "dump", str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert (process.wait(PATIENCE_S), stderr) == (0, b"")
