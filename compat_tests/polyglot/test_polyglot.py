"""Clients of Go, Rust and Node as they are published: each program tells its stories to the broker."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from tools import environment

HERE = pathlib.Path(__file__).parent


def tell(command: list[str], stories: list[str], **variables: str) -> None:
    """Runs a program to its end; every story must have held."""
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env={**os.environ, **variables}
    )
    assert finished.returncode == 0, f"held:\n{finished.stdout}\nthen:\n{finished.stderr[-3000:]}"
    assert finished.stdout.split("\n")[:-1] == [f"held {story}" for story in stories]


@pytest.mark.parametrize(
    ("client", "stories"),
    [
        ("franz", ["codecs", "seeking", "sessions", "groups", "administration", "refusals"]),
        ("segmentio", ["codecs", "connection", "groups", "refusals"]),
        ("sarama", ["codecs", "idempotence", "seeking", "groups", "administration", "refusals"]),
    ],
)
def test_a_client_of_go_works(bootstrap: str, client: str, stories: list[str]) -> None:
    program = environment.go_programs(HERE / "go") / client
    tell([str(program), bootstrap], stories)


@pytest.mark.parametrize(
    ("client", "stories"),
    [
        ("rdkafka", ["codecs", "seeking", "groups", "refusals"]),
        ("rskafka", ["codecs", "seeking", "waiting", "refusals"]),
    ],
)
def test_a_client_of_rust_works(bootstrap: str, client: str, stories: list[str]) -> None:
    program = environment.rust_programs(HERE / "rust") / client
    tell([str(program), bootstrap], stories)


def test_kafkajs_works(bootstrap: str) -> None:
    modules = environment.node_modules(HERE / "node")
    stories = ["codecs", "seeking", "groups", "administration", "refusals"]
    tell(["node", str(HERE / "node" / "stories.js"), bootstrap], stories, NODE_PATH=str(modules))
