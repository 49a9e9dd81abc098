"""Runs a Python module with Odradek from its pure wheel instead of the checkout: no compiled parts anywhere.

    python -m tools.with_pure_wheel -m pytest tests/storage

An entry of PYTHONPATH comes before an editable install, for child processes too; a `sitecustomize` beside the
package takes the finder of the editable install away, which would still find the compiled parts by name.
The tests are the checkout's.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from tools import build_dists

NO_EDITABLE_INSTALL = """
import sys

sys.meta_path[:] = [
    finder for finder in sys.meta_path if not getattr(finder, "__module__", "").startswith("__editable__")
]
"""

PROBE = """
import importlib.util, pathlib, sys, odradek
assert pathlib.Path(odradek.__file__).is_relative_to(sys.argv[1]), f"not the pure wheel: {odradek.__file__}"
found = [name for name in sys.argv[2:] if importlib.util.find_spec(name)]
assert not found, f"compiled parts are there: {found}"
"""


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="odradek-pure-") as name:
        folder = pathlib.Path(name).resolve()
        wheel = build_dists.build_pure(folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith("odradek/")])
        (folder / "sitecustomize.py").write_text(NO_EDITABLE_INSTALL)
        # CI set means that a missing compiled part is an error; here it is what was asked for.
        environment = {key: value for key, value in os.environ.items() if key != "CI"}
        environment["PYTHONPATH"] = str(folder)
        probe = [sys.executable, "-c", PROBE, str(folder), *build_dists.extension_modules()]
        subprocess.run(probe, check=True, env=environment)
        return subprocess.run([sys.executable, *arguments], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
