"""What the part `spark` says of the processor's time: that of all processes of a Spark session."""

import subprocess
import sys

from benchmarks.spark import Measured, compared, cpu_seconds_of_all

BURN = "import time\nwhile time.process_time() < 0.2: pass\n"
FAMILY = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
command = [sys.executable, "-c", {BURN!r} + "print(flush=True); input()"]
child = subprocess.Popen(command, stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
"""


def test_the_time_of_children_that_run_and_that_have_ended_counts():
    program = [sys.executable, "-c", FAMILY]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"\n"  # of the child that runs, when it has worked
        assert cpu_seconds_of_all(parent.pid) >= 0.35
        parent.communicate(b"\n")
    assert parent.returncode == 0


def test_a_comparison_is_of_whole_queries_and_of_all_processes():
    theirs, ours = Measured([100.0], [3.0], [2.0]), Measured([110.0], [3.0], [1.0])
    rates, times = compared("batch write", theirs, ours)
    assert (rates.ratio, rates.met) == (1.1, True)
    assert (times.kafka, times.odradek, times.lower) == ([5.0], [4.0], True)
