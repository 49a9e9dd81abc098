"""Builds what is published once, and installs each in an environment of its own, outside the checkout.

Everything that is tried runs with a clean environment and in a folder of its own, so that neither PYTHONPATH nor
the current directory can bring the checkout in.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.outside import clean_environment
from tools import build_dists
from tools.build_dists import Dists
from tools.environment import compiler, only_from, wheels

PATIENCE_S = 120
USERS = ("pytest", "kafka-python>=3.0")
"""What a user has beside Odradek who tries it in a test."""
NOT_OPTIMIZED = {"CFLAGS": "-O0"}
"""For a build from sources in which only its success counts: a fifth of the processor time, measured with the
largest part. What is published is built by `build_dists`, with its own flags."""


@dataclass(frozen=True)
class Installed:
    """A virtual environment in which one of our distributions is installed, and a folder to work in."""

    folder: pathlib.Path
    home: pathlib.Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def odradek(self) -> str:
        """The console script."""
        return str(self.folder / "bin" / "odradek")

    def run(self, *command: str) -> str:
        """Standard output of a command that must succeed."""
        finished = subprocess.run(
            command,
            cwd=self.home,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def install(self, *requirements: str, of: pathlib.Path | None = None, **environment: str) -> None:
        """From a folder of wheels, by default that for `USERS`, and from nowhere else."""
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        environment |= only_from(of or wheels(*USERS))
        finished = subprocess.run(
            pip, cwd=self.home, env=clean_environment(**environment), capture_output=True, text=True
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr


def empty(folder: pathlib.Path, python: str = sys.executable) -> Installed:
    """An environment in which nothing is installed yet."""
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True, env=clean_environment())
    home = folder / "home"
    home.mkdir()
    return Installed(folder / "venv", home)


def _installed(folder: pathlib.Path, what: pathlib.Path, **environment: str) -> Installed:
    made = empty(folder)
    made.install(str(what), **environment)
    return made


@pytest.fixture(scope="session")
def dists(tmp_path_factory: pytest.TempPathFactory) -> Dists:
    """The sdist and the wheel of this checkout."""
    return build_dists.build(tmp_path_factory.mktemp("dists"))


@pytest.fixture(scope="session")
def environments(dists: Dists, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Installed]]:
    """Both, made at the same time since pip mostly waits; `sdist` is compiled by whatever there is."""
    wheels(*USERS)  # once, and not by each of the two
    with concurrent.futures.ThreadPoolExecutor() as pool:
        futures = {
            "wheel": pool.submit(_installed, tmp_path_factory.mktemp("wheel"), dists.wheel),
            "sdist": pool.submit(_installed, tmp_path_factory.mktemp("sdist"), dists.sdist, **compiler(), **NOT_OPTIMIZED),
        }
        yield {name: future.result() for name, future in futures.items()}


@pytest.fixture(scope="session", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, environments: dict[str, Installed]) -> Installed:
    """Each of the two ways in which Odradek gets onto a machine."""
    return environments[request.param]


@pytest.fixture(scope="session", params=["wheel", "sdist"])
def users(request: pytest.FixtureRequest, environments: dict[str, Installed]) -> Installed:
    """Each of the two as a user of pytest and kafka-python has it.

    Last of all in test_installed.py: the tests before it look at an environment that holds nothing else.
    """
    environments[request.param].install(*USERS)
    return environments[request.param]
