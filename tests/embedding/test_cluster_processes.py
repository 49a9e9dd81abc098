"""The processes of a cluster: how they are started, paused and ended, and that they end with their parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import odradek
from odradek.embedding.cluster_processes import ChildProcess, ClusterStartError, wait_until_ready

DEADLINE_S = 30

READY = "import sys, time; print('ready', *sys.argv[1:], flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}"


@pytest.fixture
def child(tmp_path):
    made = ChildProcess("the child", [sys.executable, "-c", READY, "one"], tmp_path / "log")
    yield made
    made.end(signal.SIGKILL)


def start(child):
    child.begin()
    # The whole line: where output is not buffered, Python writes a line in parts.
    wait_until_ready([(child, lambda: child.said().endswith("\n"))], DEADLINE_S)


def state_of(pid):
    """As /proc tells it in one letter; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def wait_for(claim, what):
    deadline = time.monotonic() + DEADLINE_S
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_child_is_started_again_and_its_log_is_that_of_the_present_run(child):
    start(child)
    first = child.pid
    assert child.said() == "ready one\n"
    child.end(signal.SIGTERM)
    assert (child.is_running, child.pid) == (False, None)
    child.command[-1] = "two"
    start(child)
    assert child.pid != first
    assert child.said() == "ready two\n"
    assert child.log.read_text() == "ready one\nready two\n"


def test_a_paused_child_runs_and_can_be_ended(child):
    start(child)
    child.pause()
    wait_for(lambda: state_of(child.pid) == "T", "it is stopped")
    assert child.is_running
    assert child.is_paused
    child.resume()
    wait_for(lambda: state_of(child.pid) == "S", "it goes on")
    child.pause()
    child.end(signal.SIGTERM)
    assert not child.is_running
    assert not child.is_paused


def test_who_is_paused_has_to_run(child):
    with pytest.raises(RuntimeError, match="the child does not run"):
        child.pause()


def test_the_end_of_a_child_that_never_started_is_harmless(child):
    child.end(signal.SIGTERM)
    child.finish()


def test_a_child_that_ends_before_it_is_ready_is_told_with_its_last_words(tmp_path):
    child = ChildProcess("the child", [sys.executable, "-c", "print('no'); exit(3)"], tmp_path / "log")
    child.begin()
    with pytest.raises(ClusterStartError, match=r"^the child ended with status 3:\nno$"):
        wait_until_ready([(child, lambda: False)], DEADLINE_S)
    child.finish()


def test_of_a_node_of_ours_the_sentence_is_told(tmp_path):
    program = "print('WARNING this'); print('odradek: The port is taken.'); exit(1)"
    child = ChildProcess("node 2", [sys.executable, "-c", program], tmp_path / "log")
    child.begin()
    with pytest.raises(ClusterStartError, match=r"^node 2: The port is taken\.$"):
        wait_until_ready([(child, lambda: False)], DEADLINE_S)
    child.finish()


def test_a_slow_child_is_told_in_a_sentence(child):
    start(child)
    with pytest.raises(ClusterStartError, match=r"^the child was not ready within 0\.1 s:\nready one$"):
        wait_until_ready([(child, lambda: False)], 0.1)


def test_one_that_ends_while_another_starts_is_told(child, tmp_path):
    other = ChildProcess("the other", [sys.executable, "-c", "exit(4)"], tmp_path / "other")
    other.begin()
    start(child)
    with pytest.raises(ClusterStartError, match=r"^the other ended with status 4$"):
        wait_until_ready([(child, lambda: False)], DEADLINE_S, [other])
    other.finish()


@pytest.mark.parametrize(
    "program",
    # It has five seconds to end by itself.
    [pytest.param(READY, id="obedient"), pytest.param(STUBBORN, id="stubborn", marks=pytest.mark.deep)],
)
@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_child_ends_with_its_parent_however_that_ends(tmp_path, program, is_paused):
    parent = f"""
        import os, pathlib, signal, sys
        from odradek.embedding.cluster_processes import ChildProcess, wait_until_ready
        log = pathlib.Path({str(tmp_path)!r}, "log")
        child = ChildProcess("child", [sys.executable, "-c", {program!r}], log)
        child.begin()
        wait_until_ready([(child, lambda: "ready" in child.said())], {DEADLINE_S})
        if {is_paused}:
            child.pause()
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    package = os.path.dirname(odradek.__path__[0])
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(parent)],
        stdout=subprocess.PIPE,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])},
    )
    assert result.returncode == -signal.SIGKILL
    pid = int(result.stdout)
    # Who takes in orphans may leave a zombie for a while.
    wait_for(lambda: state_of(pid) in (None, "Z"), "the child lives on")


def test_nothing_stays_behind_when_a_child_ends_by_itself(tmp_path):
    """Nor does what would end it with its parent."""
    child = ChildProcess("the child", [sys.executable, "-c", "print('done')"], tmp_path / "log")
    child.begin()
    session = child.popen.pid
    wait_for(lambda: not child.is_running, "it ends")
    wait_for(lambda: not processes_of_session(session), "its watcher ends")
    child.finish()


def processes_of_session(session):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(name))
    return found
