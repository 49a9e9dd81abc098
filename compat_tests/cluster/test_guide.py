"""The guide, docs/cluster.md: three nodes from nothing, by a shell and in Python."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys

from compat_tests.clients import wait_until
from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.cluster.test_replication import isr_of
from compat_tests.outside import clean_environment
from compat_tests.quorum import CONTROLLER_JVM
from compat_tests.reference import programs
from tools import environment

GUIDE = environment.CHECKOUT / "docs" / "cluster.md"
PREFIX = "909"
"""Of the ports: the controller has 0 behind it, the nodes 1, 2 and 3."""
SECONDS = 120


def block(language: str) -> str:
    section = GUIDE.read_text().partition("## From nothing to three nodes in ten lines\n")[2]
    (found,) = re.findall(
        rf"^```{language}\n(.*?)^```", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL
    )
    assert len(found.splitlines()) <= 11
    return found


def free_prefix() -> str:
    """Four ports that begin with it are free."""
    while True:
        prefix = random.randrange(2_000, 3_200)
        with contextlib.ExitStack() as probes:
            try:
                for last in range(4):
                    probe = probes.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", 10 * prefix + last))
            except OSError:
                continue
            return str(prefix)


def install_programs(folder: pathlib.Path) -> None:
    """Kafka's scripts in short, and ours."""
    folder.mkdir()
    scripts = {
        "kafka-storage.sh": programs().command("kafka.tools.StorageTool"),
        "kafka-server-start.sh": programs().command("kafka.Kafka", jvm=CONTROLLER_JVM),
        "odradek": [sys.executable, "-m", "odradek"],
    }
    for name, command in scripts.items():
        words = " ".join(f"'{word}'" for word in command)
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)


def test_the_lines_for_a_shell_start_three_nodes(tmp_path: pathlib.Path) -> None:
    install_programs(tmp_path / "bin")
    prefix = free_prefix()
    work = tmp_path / "work"
    work.mkdir()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["sh", "-ec", block("sh").replace(PREFIX, prefix) + "\nwait"],
        cwd=work,
        env=clean_environment(PATH=path),
        start_new_session=True,
    )
    nodes = [f"127.0.0.1:{prefix}{number}" for number in (1, 2, 3)]
    try:
        for number, bootstrap in enumerate(nodes, 1):
            log = work / f"node-{number}.log"
            wait_until(
                lambda log=log: log.exists() and " ready on " in log.read_text(),  # type: ignore[misc]
                "the node is ready",
                seconds=SECONDS,
            )
            wait_until(
                lambda bootstrap=bootstrap: brokers_named_by(bootstrap) == {1, 2, 3},  # type: ignore[misc]
                "it names all",
                seconds=SECONDS,
            )
        from kafka import KafkaProducer

        with KafkaProducer(bootstrap_servers=nodes, acks="all") as producer:
            assert producer.send("orders", b"one").get(SECONDS).offset == 0
        # On a busy machine a node may be fenced for a moment.
        wait_until(lambda: isr_of(nodes[0], "orders") == {1, 2, 3}, "all three are in sync")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_the_lines_of_python_print_what_the_guide_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")], stdout=subprocess.PIPE, timeout=300, check=True, text=True
    )
    assert done.stdout.split() == ["1", "2"]
