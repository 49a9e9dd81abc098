"""The wheel is for every Python from 3.11 on: installed with those that this machine has besides."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from compat_tests.dist.conftest import USERS, Installed, empty
from tools.build_dists import CHECKOUT, Dists
from tools.environment import wheels

pytestmark = [
    pytest.mark.xdist_group("dists"),  # built once
]

VERSIONS = ("3.12", "3.13", "3.14")
OWN_TESTS = ("hypothesis", "pytest-timeout")
OF_THE_LOOP = "tests/server/test_connection.py"


def found(version: str) -> str | None:
    """A Python of this version, from PATH or from pyenv."""
    on_path = shutil.which(f"python{version}")
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    for python in (on_path, *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))):
        # pyenv puts names on PATH of which some run nothing.
        if (
            python
            and subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
        ):
            return python
    return None


@pytest.fixture(params=[pytest.param(VERSIONS[0], marks=pytest.mark.nightly), *VERSIONS[1:]])
def other(request: pytest.FixtureRequest, dists: Dists, tmp_path: pathlib.Path) -> Installed:
    python = found(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} here")
    made = empty(tmp_path, python)
    made.install(str(dists.wheel), *USERS, *OWN_TESTS, of=wheels(*USERS, *OWN_TESTS, python=python))
    return made


def test_the_wheel_serves_with_uvloop_and_without(other: Installed) -> None:
    assert "uvloop: yes" in other.run(other.odradek, "--version")
    (example,) = re.findall(
        r"## Quick start\n.*?```python\n(.*?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL
    )
    assert other.run(other.python, "-c", example).strip() == "b'hello'"
    # The transports of asyncio differ from version to version.
    for name in ("pyproject.toml", "tests"):
        (other.home / name).symlink_to(CHECKOUT / name)
    said = other.run(other.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", OF_THE_LOOP)
    assert " passed" in said
    assert "failed" not in said
