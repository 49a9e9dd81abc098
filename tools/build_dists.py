"""Builds what is published: one sdist, and from it a stable-ABI wheel and a pure wheel of the same version.

    python -m tools.build_dists [FOLDER]        default: dist

Built from a copy of the checkout, so that neither `build/lib` nor an old list of sources brings deleted
modules back, and the wheels from the sdist, so that whatever that lacks is noticed here. Every build is
isolated, with setuptools and Cython from the cache of `environment.py`. Fails when a compiled part is
missing: they are optional for those who install, not for us. Needs the package `build`.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass

from tools.environment import only_from, wheels

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
NOT_SOURCE = {".git", ".venv", "build", "data", "dist"}
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", ".*_cache", ".hypothesis")


@dataclass(frozen=True)
class Dists:
    """The three files, as paths."""

    sdist: pathlib.Path
    compiled: pathlib.Path
    pure: pathlib.Path


def extension_modules() -> list[str]:
    """Full names of the compiled parts, as pyproject.toml lists them."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    return [one["name"] for one in settings["tool"]["setuptools"]["ext-modules"]]


def build(folder: pathlib.Path) -> Dists:
    """Builds all three into `folder`, which need not exist."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-dists-") as name:
        work = pathlib.Path(name)
        sdist = _build("--sdist", copy_of_checkout(work / "checkout"), work / "sdist")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            first = pool.submit(
                _build, "--wheel", _unpacked(sdist, work / "compiled"), work / "compiled-dist"
            )
            second = pool.submit(
                _build, "--wheel", _unpacked(sdist, work / "pure"), work / "pure-dist", pure=True
            )
            compiled, pure = first.result(), second.result()
        _require_compiled_parts(compiled)
        return Dists(*(pathlib.Path(shutil.copy2(one, folder)) for one in (sdist, compiled, pure)))


def build_pure(folder: pathlib.Path) -> pathlib.Path:
    """Only the pure wheel, straight from the checkout; its path in `folder`."""
    with tempfile.TemporaryDirectory(prefix="odradek-dists-") as name:
        work = pathlib.Path(name)
        wheel = _build("--wheel", copy_of_checkout(work / "checkout"), work / "dist", pure=True)
        return pathlib.Path(shutil.copy2(wheel, folder))


def copy_of_checkout(target: pathlib.Path) -> pathlib.Path:
    """What is source of this checkout, nothing that was generated, at `target`, which must not be there."""

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


def _build(kind: str, source: pathlib.Path, out: pathlib.Path, *, pure: bool = False) -> pathlib.Path:
    # A PYTHONPATH would lead into the isolated build and bring the checkout's own modules.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("ODRADEK_PURE", "PYTHONPATH")
    }
    environment |= only_from(wheels())
    if pure:
        environment["ODRADEK_PURE"] = "1"
    command = [sys.executable, "-m", "build", kind, "--outdir", str(out), str(source)]
    finished = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if finished.returncode:
        print(finished.stdout, file=sys.stderr)
        finished.check_returncode()
    (made,) = out.iterdir()
    return made


def _require_compiled_parts(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for module in extension_modules():
        if f"{module.replace('.', '/')}.abi3.so" not in names:
            raise SystemExit(f"{wheel.name} lacks {module}: a C compiler is needed (Debian: gcc libc6-dev)")


if __name__ == "__main__":
    made = build(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    print(made.sdist, made.compiled, made.pure, sep="\n")
