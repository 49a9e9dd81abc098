"""The progress of `odradek check` and `odradek import-log`: a line on a terminal, by a clock of the test."""

import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading

import pytest

from odradek.commands.main import main
from odradek.coordinator.cluster.topics import NewTopic
from odradek.offline.check import check
from odradek.offline.import_log import import_log
from odradek.offline.report import Progress
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.records import Record, build_batch
from tests.kit.data_directories import controller_of

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
BATCH_BYTES = 3000
BATCHES = 6
CLEAR = "\r\x1b[K"


class Terminal:
    """A pseudo-terminal: `file` is what a program writes to, `text` what has come out of it."""

    def __init__(self, columns=80):
        self._reading, writing = pty.openpty()
        fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.file = os.fdopen(writing, "w")
        self._pieces = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        while True:
            try:
                piece = os.read(self._reading, 1 << 16)
            except OSError:  # the other side is closed
                break
            self._pieces.append(piece)

    def text(self):
        """All of it; nothing can be written afterwards."""
        if not self.file.closed:
            self.file.close()
            self._reader.join()
            os.close(self._reading)
        return b"".join(self._pieces).decode()


class Clock:
    """Goes on by `step` seconds with each look at it."""

    def __init__(self, step):
        self.now, self._step = 1000.0, step

    def __call__(self):
        self.now += self._step
        return self.now


@pytest.fixture
def terminal():
    terminal = Terminal()
    yield terminal
    terminal.text()


@pytest.fixture
def data(tmp_path):
    """A data directory with two partitions, after a clean stop."""
    directory = tmp_path / "old"
    with controller_of(directory, topic_id=TOPIC_ID) as controller:
        controller.create_topics([NewTopic("orders", 2, 1)])
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    for index in range(2):
        partition = store.create("orders", index, TOPIC_ID, LogConfig(segment_bytes=2 * BATCH_BYTES))
        for _ in range(BATCHES):
            partition.appends.append(
                build_batch([Record(0, NOW_MS, None, bytes(BATCH_BYTES))]), now_ms=NOW_MS
            )
            partition.commit()
    store.close(NOW_MS)
    return directory


def lines(text):
    """What the line has said, one after the other, without the places where it was removed."""
    return [line for line in text.split(CLEAR) if line]


def test_a_long_check_says_which_partition_and_how_much(data, terminal):
    check([str(data)], out=io.StringIO(), terminal=terminal.file, clock=Clock(1.0))
    shown = lines(terminal.text())
    assert len(shown) >= 2 * BATCHES // 2
    told = [re.fullmatch(r"(\d+) %, (\d+) of (\d+) kB, (\S+)", line).groups() for line in shown]
    done = [int(one) for _, one, _, _ in told]
    total = 2 * BATCHES * BATCH_BYTES // 1000
    assert done == sorted(done)
    assert {int(of) for _, _, of, _ in told} == {done[-1]}
    assert total <= done[-1] <= total + 2
    assert told[-1][0] == "100"
    assert [one[-8:] for _, _, _, one in told] == sorted(one[-8:] for _, _, _, one in told)
    assert {one[-8:] for _, _, _, one in told} == {"orders-0", "orders-1"}
    assert terminal.text().endswith(CLEAR)


def test_a_repair_reads_more_and_never_says_more_than_all(data, terminal):
    log = next(iter(sorted((data / "orders-0").glob("*.log"))))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    check([str(data)], out=io.StringIO(), terminal=terminal.file, clock=Clock(1.0), repair=True)
    told = [re.match(r"(\d+) %, (\d+) of (\d+) kB", line).groups() for line in lines(terminal.text())]
    assert all(int(share) <= 100 and int(done) <= int(total) for share, done, total in told)
    assert int(told[-1][2]) > int(told[0][2])


def test_a_long_import_says_which_partition_and_how_much(data, tmp_path, terminal):
    import_log(
        [str(data)],
        topic="orders",
        data_dir=str(tmp_path / "data"),
        out=io.StringIO(),
        terminal=terminal.file,
        clock=Clock(1.0),
    )
    shown = lines(terminal.text())
    told = [re.fullmatch(r"(\d+) %, (\d+) of (\d+) kB, .*(orders-\d)", line).groups() for line in shown]
    assert {one for _, _, _, one in told} == {"orders-0", "orders-1"}
    # Copied, then read.
    total = 2 * 2 * BATCHES * BATCH_BYTES // 1000
    assert all(total <= int(of) <= total + 4 for _, _, of, _ in told)
    assert told[-1][0] == "100"
    assert terminal.text().endswith(CLEAR)


@pytest.mark.parametrize(("step", "is_shown"), [(0.001, False), (0.3, True)])
def test_what_is_done_within_a_second_shows_nothing(data, terminal, step, is_shown):
    check([str(data)], out=io.StringIO(), terminal=terminal.file, clock=Clock(step))
    assert bool(terminal.text()) is is_shown


def test_the_line_changes_five_times_a_second_at_most(terminal):
    clock = Clock(0.0)
    progress = Progress(terminal.file, clock)
    progress.expect(100_000)
    clock.now += 1
    for _ in range(100):
        clock.now += 0.01
        progress.advance(1000, "data/orders-0")
    # A step of 0.2 s may be a little more than twenty of 0.01 s.
    assert 4 <= len(lines(terminal.text())) <= 5


@pytest.mark.parametrize("columns", [20, 80])
def test_the_line_is_never_longer_than_the_terminal(columns):
    terminal = Terminal(columns)
    progress = Progress(terminal.file, Clock(1.0))
    progress.expect(10_000_000_000)
    for path in (f"data/{'long-' * 40}-7", "data/\x1b[2Jorders-7", "größe-7"):
        progress.advance(100_000_000, path)
    shown = lines(terminal.text())
    assert len(shown) == 3
    assert all(len(line) < columns and "\x1b" not in line for line in shown)
    if columns == 80:
        assert shown[0].startswith("1 %, 0 of 10 GB, …")
        assert shown[0].endswith("long--7")


def test_an_interrupt_removes_the_line(data, terminal):
    def clock():
        now = Clock.__call__(ticking)
        if now > 1005:
            raise KeyboardInterrupt
        return now

    ticking = Clock(1.0)
    with pytest.raises(KeyboardInterrupt):
        check([str(data)], out=io.StringIO(), terminal=terminal.file, clock=clock)
    assert lines(terminal.text())
    assert terminal.text().endswith(CLEAR)


def test_a_terminal_that_has_gone_is_no_finding(data):
    out = io.StringIO()
    gone = open("/dev/full", "w")  # noqa: SIM115
    assert check([str(data)], out=out, terminal=gone, clock=Clock(1.0)) == 0
    with pytest.raises(OSError, match="No space left"):
        gone.close()
    assert out.getvalue().startswith("summary ")


COMMANDS = [["check", "{old}"], ["import-log", "{old}", "--topic", "orders", "--data-dir", "{new}"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_the_commands_show_it_on_the_terminal_of_stderr(command, data, tmp_path, terminal, monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal.file)
    monkeypatch.setattr("odradek.offline.report.PROGRESS_AFTER_S", -1.0)
    assert main([word.format(old=data, new=tmp_path / "new") for word in command]) == 0
    shown = lines(terminal.text())
    assert shown
    assert all(re.fullmatch(r"\d+ %, \d+ of \d+ kB, .*orders-\d", line) for line in shown)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_pipe_gets_none(command, data, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("odradek.offline.report.PROGRESS_AFTER_S", -1.0)
    assert main([word.format(old=data, new=tmp_path / "new") for word in command]) == 0
    out, err = capfd.readouterr()
    assert "orders" in out or "summary" in out
    assert err == ""
