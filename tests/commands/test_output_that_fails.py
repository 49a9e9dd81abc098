"""The output of commands on a full disk, on a closed pipe and in an encoding that cannot spell a name."""

import os
import subprocess
import sys

import pytest

from tests.kit.data_directories import FIRST, make_data


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path / "data")


def outputs(data):
    """Commands that read the directory, and print of it."""
    return (
        ("check", str(data)),
        ("dump", str(data)),
        ("import-log", str(data), "--topic", "orders", "--data-dir", f"{data}-2"),
    )


def printed_to(stdout, arguments):
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has such a device")
def test_an_output_on_a_full_disk_is_told_in_one_sentence(data):
    for arguments in (*outputs(data), ("--version",)):
        with open("/dev/full", "w") as full:
            assert printed_to(full, arguments) == (
                1,
                "odradek: the output cannot be written: the disk is full.\n",
            )


def test_a_closed_pipe_is_no_failure(data):
    for arguments in (*outputs(data), ("--version",)):
        ours, theirs = os.pipe()
        os.close(ours)
        with open(theirs, "w") as closed:
            assert printed_to(closed, arguments) == (0, ""), arguments
    assert os.path.exists(f"{data}-2/orders-0/{FIRST}.log")


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_a_name_that_the_output_cannot_spell_is_told_all_the_same(data, encoding):
    try:
        open(os.fsencode(data / "orders-0") + b"/\xff\xc3\xbc.log", "wb").close()
    except OSError:
        pytest.skip("this file system takes no such name")
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "check", str(data)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b".log: is not named like a segment." in done.stdout
