"""The guide, docs/security.md: its fifteen lines give a broker with TLS, users and ACLs."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

from compat_tests.clients import wait_until
from compat_tests.outside import clean_environment
from tools import environment

GUIDE = environment.CHECKOUT / "docs" / "security.md"
ADDRESS = "localhost:9094"
SECONDS = 120
LINES_MAX = 15


def block(language: str) -> str:
    section = GUIDE.read_text().partition("in fifteen lines\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return found


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"localhost:{probe.getsockname()[1]}"


def install_programs(folder: pathlib.Path) -> None:
    """Ours alone: nothing of Kafka is needed."""
    folder.mkdir()
    scripts = {"odradek": [sys.executable, "-m", "odradek"]}
    for name, command in scripts.items():
        words = " ".join(f"'{word}'" for word in command)
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)


def test_the_lines_of_the_guide_let_alice_write_to_her_topic_and_nobody_else(tmp_path: pathlib.Path) -> None:
    install_programs(tmp_path / "bin")
    work, address = tmp_path / "work", free_address()
    work.mkdir()
    shell_lines = block("sh")
    assert len(shell_lines.replace("\\\n", "").splitlines()) <= LINES_MAX
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["sh", "-ec", shell_lines.replace(ADDRESS, address) + "\ntouch done\nwait"],
        cwd=work,
        env=clean_environment(PATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until((work / "done").exists, "the lines have run", seconds=SECONDS)
        client = block("python").replace(ADDRESS, address)
        assert ran(client, work).stdout == "0\n"
        assert "TOPIC_AUTHORIZATION_FAILED" in ran(client.replace('"orders"', '"others"'), work).stdout
        wrong = ran(client.replace("alice-secret", "guess").replace("flush(30)", "flush(3)"), work)
        assert wrong.stdout == ""
        assert "SASL authentication error" in wrong.stderr
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        output = shell.communicate(timeout=SECONDS)[0]
    assert "User:alice" in output
    assert "secret" not in output
    assert "can read the private key" not in output


def ran(program: str, work: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=work,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=SECONDS,
        check=False,
    )
