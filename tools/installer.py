"""Makes virtual environments and installs packages into them: with uv, which takes a tenth of the time that
pip takes, or with pip where uv could not do as the configuration of pip says.

uv does not read what is set for pip (in files and in variables PIP_*). What it has a word for is handed over
in variables; anything else leaves the work to pip, and so does ODRADEK_INSTALLER=pip. Variables of uv's own
that are set (UV_*) go before. This file imports nothing of ours: it runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

UV = "uv==0.13.9"
CHOICE = "ODRADEK_INSTALLER"
"""The variable that takes pip in any case: `pip`."""

HANDED_OVER = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
"""An option of pip -> the variable with which uv does the same."""

UNHEEDED = {
    *("break-system-packages", "config-file", "disable-pip-version-check", "no-color", "no-compile"),
    *("no-input", "no-warn-script-location", "progress-bar", "quiet", "require-virtualenv"),
    *("root-user-action", "verbose"),
}
"""Options of pip that change nothing about what is installed into an environment of ours."""

COMMANDS = ["global", "install", ":env:"]
"""Sections of pip's configuration that hold for an installation; each goes before those on its left."""


def settings(listed: str) -> dict[str, str]:
    """Settings for an installation, of all that `pip config list` lists."""
    found: dict[str, dict[str, str]] = {section: {} for section in COMMANDS}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in found:
            found[section][option] = ast.literal_eval(value)
    return {option: value for section in COMMANDS for option, value in found[section].items()}


def untold(wanted: Mapping[str, str]) -> list[str]:
    """The options that uv could not be told."""
    return sorted(wanted.keys() - HANDED_OVER.keys() - UNHEEDED)


def uv_variables(wanted: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Variables with which uv does what the options say, but for what `own`, the environment, has for uv."""
    variables = {
        "UV_SYSTEM_CERTS": "1",  # as new versions of pip do
        # A package is taken from the index that has the newest version; uv by itself takes the first index.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    for option, value in wanted.items():
        if variable := HANDED_OVER.get(option):
            separator = "," if variable == "UV_FIND_LINKS" else " "
            variables[variable] = separator.join(value.split())
    return {name: value for name, value in variables.items() if not (name in own and name.startswith("UV_"))}


def _configuration(pip: Sequence[str]) -> dict[str, str] | None:
    """Version of pip; None if it does not tell."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True)
    return settings(listed.stdout) if listed.returncode == 0 else None


def fetch_uv(pip: Sequence[str], target: pathlib.Path) -> bool:
    """Whether uv could be installed into the folder. There is no wheel of it for a rare system."""
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary=:all:"]
    command = [*pip, "install", *options, "--target", str(target), UV]
    return subprocess.run(command, stdout=sys.stderr).returncode == 0


class Pip:
    """Python's own way."""

    asks_last = False

    def make_venv(self, folder: pathlib.Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)

    def install(self, folder: pathlib.Path, requirements: list[str], variables: Mapping[str, str]) -> None:
        """Installs into the environment `folder`; `variables` are for builds."""
        python = str(folder / "bin" / "python")
        # Modules are compiled when they are imported, which most never are.
        options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        subprocess.run(
            [python, "-m", "pip", "install", *options, *requirements],
            check=True,
            env={**os.environ, **variables},
            stdout=sys.stderr,
        )


class Uv:
    """Has what it downloaded and built in a cache of its own, from which an environment gets links."""

    asks_last = True
    """Whether the index is asked only where the cache does not do: some send PySpark's 400 MB again when
    they are asked whether they are new. Else everything is the newest."""

    def __init__(self, program: pathlib.Path, variables: Mapping[str, str]) -> None:
        self.program = str(program)
        self.variables = variables

    def make_venv(self, folder: pathlib.Path) -> None:
        # A first try that lacks a package of the seed leaves a folder behind, which the second would refuse.
        options = ["--no-project", "--seed", "--clear", "--python", sys.executable]
        self._run(["venv", *options, str(folder)], {})

    def install(self, folder: pathlib.Path, requirements: list[str], variables: Mapping[str, str]) -> None:
        """Installs into the environment `folder`; `variables` are for builds."""
        options = [
            *("--python", str(folder / "bin" / "python")),
            # uv does not see that a source of a compiled part has changed.
            *("--refresh-package", "odradek", "--reinstall-package", "odradek"),
            # PySpark comes as a source package, of which a wheel is made: 400 MB of jars would be compressed.
            *("--config-settings-package", "pyspark:--build-option=--compression=stored"),
        ]
        self._run(["pip", "install", *options, *requirements], variables)

    def _run(self, arguments: list[str], variables: Mapping[str, str]) -> None:
        command = [self.program, "--quiet", *arguments]
        everything = {**os.environ, **self.variables, **variables}
        if self.asks_last:
            offline = {**everything, "UV_OFFLINE": "1"}
            if subprocess.run(command, env=offline, capture_output=True).returncode == 0:
                return
        try:
            subprocess.run(command, check=True, env=everything, stdout=sys.stderr)
        except subprocess.CalledProcessError:
            print(f"uv failed; with {CHOICE}=pip it is pip that installs", file=sys.stderr)
            raise


def choose(
    pip: Sequence[str], program: Callable[[], pathlib.Path | None], say: Callable[[str], object]
) -> Pip | Uv:
    """The installer. `pip` is the command whose configuration counts; `program` fetches uv and gives its
    path, or None; `say` is told why it is pip."""
    if os.environ.get(CHOICE) == "pip":
        return Pip()
    wanted = _configuration(pip)
    if wanted is None or (options := untold(wanted)):
        said = "cannot be read" if wanted is None else f"has {', '.join(options)}"
        say(f"pip installs, which takes longer than uv: its configuration {said}")
        return Pip()
    if (found := program()) is None:
        say(f"pip installs, which takes longer: {UV} is not to be had")
        return Pip()
    return Uv(found, uv_variables(wanted, os.environ))
