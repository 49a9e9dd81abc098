"""Client libraries of Go and Node, each a program of `compat_tests/polyglot` that ends with 0 or 1."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tools import environment

POLYGLOT = pathlib.Path(__file__).parents[1] / "polyglot"
LIBRARIES = ("franz", "sarama-0", "sarama-1", "kafkajs")
"""The number is the version of the handshake."""


def let_try(
    library: str,
    bootstrap: str,
    mechanism: str,
    user: str,
    password: str,
    *more: str,
    ca: pathlib.Path | None = None,
    certificate: pathlib.Path | None = None,
    refused: str = "",
) -> None:
    """Fails where the library does not get in, or gets in with something else. With `refused` it must not get
    in, for a reason with these words. See the programs for what user and password are with each mechanism.
    """
    variables = {"CA": ca, "CLIENT": certificate, "REFUSED": refused}
    given = {name: str(value) for name, value in variables.items() if value}
    words = [bootstrap, mechanism, user, password, *more]
    if library == "kafkajs":
        command = ["node", str(POLYGLOT / "node" / "sasl.js"), *words]
        given["NODE_PATH"] = str(environment.node_modules(POLYGLOT / "node"))
    else:
        name, _, handshake = library.partition("-")
        if handshake:
            words.insert(1, handshake)
        command = [str(environment.go_programs(POLYGLOT / "go") / f"{name}_sasl"), *words]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env={**os.environ, **given}
    )
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr[-3000:]}"
