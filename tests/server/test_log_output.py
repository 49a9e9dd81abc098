"""The log on stderr: JSON, levels of single loggers, repeats."""

import io
import json
import logging

import pytest

from odradek.server.process.log_output import Gathering, log_to_stderr


@pytest.fixture(autouse=True)
def level_as_before():
    disks = logging.getLogger("odradek.disks")
    before = disks.level
    yield
    disks.setLevel(before)


def test_an_event_is_an_object_a_line(capsys):
    log_to_stderr("info", form="json")
    logger = logging.getLogger("odradek.disks")
    logger.warning("größe %d\nof two lines", 3)
    try:
        raise OSError("no such disk")
    except OSError:
        logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "warning", "logger": "odradek.disks", "message": "größe 3\nof two lines"}
    assert second["error"] == {"type": "OSError", "message": "no such disk"}


def test_a_traceback_is_there_with_debug(capsys):
    log_to_stderr("debug", form="json")
    try:
        raise OSError("no such disk")
    except OSError:
        logging.getLogger("odradek.disks").exception("it failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "test_log_output.py" in json.loads(line)["error"]["traceback"]


def test_a_logger_may_have_a_level_of_its_own(capsys):
    log_to_stderr("error", {"odradek.disks": "info"})
    logging.getLogger("odradek.disks").info("told")
    logging.getLogger("odradek.fetch").warning("not told")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO told")


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_repeats_are_told_as_a_number_after_a_second():
    out, clock = io.StringIO(), Clock()
    gathering = Gathering(logging.StreamHandler(out), clock)
    logger = logging.Logger("odradek.connection")
    logger.addHandler(gathering)
    for _ in range(5):
        logger.warning("%s sends nonsense", "10.0.0.7")
    logger.warning("%s sends nonsense", "10.0.0.8")
    assert out.getvalue().splitlines() == ["10.0.0.7 sends nonsense", "10.0.0.8 sends nonsense"]
    clock.now_s = 1.5
    logger.warning("another event")
    assert out.getvalue().splitlines()[2:] == [
        "10.0.0.7 sends nonsense (4 more within 1 s)",
        "another event",
    ]
    logger.warning("another event")
    logger.warning("%s sends nonsense", "10.0.0.7")
    gathering.flush()
    assert out.getvalue().splitlines()[4:] == [
        "10.0.0.7 sends nonsense",
        "another event (1 more within 1 s)",
    ]


def test_events_that_are_remembered_are_bounded():
    out = io.StringIO()
    gathering = Gathering(logging.StreamHandler(out), Clock())
    logger = logging.Logger("odradek.connection")
    logger.addHandler(gathering)
    for number in range(1_500):
        logger.warning("%d", number)
        logger.warning("%d", number)
    assert len(out.getvalue().splitlines()) == 1_000 + 2 * 500
