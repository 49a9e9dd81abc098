"""Compiles the extension modules of a checkout in place, those whose source is newer than what was built.

`python tools/compile_extensions.py`: reads the list in pyproject.toml. Without a C compiler or Cython it says
so and leaves everything as it is: the plain Python twins serve as well, only slower.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for extension in settings["tool"]["setuptools"]["ext-modules"]:
        source = ROOT / extension["sources"][0]
        target = source.with_suffix(".abi3.so")
        inputs = [source, *(ROOT / name for name in extension.get("depends", ()))]
        if target.exists() and target.stat().st_mtime >= max(one.stat().st_mtime for one in inputs):
            continue
        missing = _missing()
        if missing:
            print(f"not compiled: {missing} is missing; the plain Python twins are used", file=sys.stderr)
            return 0
        _compile(extension, source, target)
    return 0


def _missing() -> str:
    if not _compiler():
        return "a C compiler"
    done = subprocess.run([sys.executable, "-c", "import Cython"], capture_output=True, check=False)
    return "Cython" if done.returncode else ""


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def _compile(extension: dict, source: pathlib.Path, target: pathlib.Path) -> None:
    generated = source.with_suffix(".c")
    options = ["--module-name", extension["name"], "-o", str(generated)]
    subprocess.run([sys.executable, "-m", "cython", *options, str(source)], check=True, cwd=ROOT)
    flags = [f"-I{ROOT / folder}" for folder in extension.get("include-dirs", ())]
    flags += [f"-D{name}={value}" for name, value in extension.get("define-macros", ())]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    made = target.with_suffix(".new")
    command = [_compiler(), "-O2", "-fPIC", "-shared", f"-I{sysconfig.get_paths()['include']}", *flags]
    subprocess.run([*command, str(generated), "-o", str(made)], check=True, cwd=ROOT)
    made.replace(target)


if __name__ == "__main__":
    sys.exit(main())
