"""What `make` needs of the system: what is missing is named, with the package that brings it."""

import os
import pathlib
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TOLD = {
    "javac": "missing: a JDK, 17 or later (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "missing: Maven (Debian: apt-get install maven)",
    "taskset": "missing: taskset (Debian: apt-get install util-linux)",
    "openssl": "missing: the command of OpenSSL (Debian: apt-get install openssl)",
    "curl": "missing: curl, for the pages of docs/howto (Debian: apt-get install curl)",
}
TOLD_BY_NIGHT = {
    "krb5-config": "missing: the headers of Kerberos (Debian: apt-get install libkrb5-dev)",
    "krb5kdc": "missing: the server of Kerberos (Debian: apt-get install krb5-kdc)",
    "kadmin.local": "missing: the administration of Kerberos (Debian: apt-get install krb5-admin-server)",
    "kinit": "missing: the client of Kerberos (Debian: apt-get install krb5-user)",
    "kcat": (
        "missing: kcat with the GSSAPI of Cyrus SASL "
        "(Debian: apt-get install kcat libsasl2-modules-gssapi-mit)"
    ),
    "go": "missing: Go (Debian: apt-get install golang-go)",
    "node": "missing: Node (Debian: apt-get install nodejs)",
    "npm": "missing: npm (Debian: apt-get install npm)",
    "cargo": "missing: Rust (Debian: apt-get install cargo)",
    "zsh": "missing: zsh, for the completion of commands (Debian: apt-get install zsh)",
    "fish": "missing: fish, for the completion of commands (Debian: apt-get install fish)",
    "tmux": "missing: tmux, for the commands in a terminal (Debian: apt-get install tmux)",
    "prometheus": "missing: Prometheus, for boards and alerts (Debian: apt-get install prometheus)",
}
OTHERS = {name: "" for name in TOLD if name != "javac"}


@pytest.fixture
def run(tmp_path):
    """Status, stdout and stderr of a command of tools/environment.py on a system with these programs."""

    def run(command, nightly="", **programs):
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        ended = subprocess.run(
            [sys.executable, str(CHECKOUT / "tools" / "environment.py"), command],
            env={**os.environ, "PATH": str(tmp_path), "ODRADEK_NIGHTLY": nightly},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout, ended.stderr.splitlines()

    return run


def test_everything_that_is_missing_is_named_with_its_package(run):
    assert run("check") == (1, "", list(TOLD.values()))
    assert run("missing-packages") == (0, "openjdk-17-jdk-headless maven util-linux openssl curl\n", [])


def test_the_night_needs_more(run):
    assert run("check", nightly="1") == (1, "", [*TOLD.values(), *TOLD_BY_NIGHT.values()])


def test_what_is_there_is_not_named(run):
    assert run("check", **OTHERS) == (1, "", [TOLD["javac"]])
    assert run("check", javac="echo javac 21.0.2") == (0, "", [])
    assert run("missing-packages") == (0, "\n", [])


@pytest.mark.parametrize("said", ["javac 11.0.22", "javac 1.8.0_402", "no version"])
def test_an_old_jdk_is_none(run, said):
    assert run("check", **OTHERS, javac=f"echo {said} >&2") == (1, "", [TOLD["javac"]])
