"""Files from which a virtual machine of Java maps classes, where it would load and verify them from jars.

Half of the processor time of a short-lived program of Java goes into that. A machine of another version, or
one whose class path does not begin with the one of the file, does without it and says nothing.
"""

from __future__ import annotations

import fcntl
import functools
import subprocess
from collections.abc import Callable

from odradek.server.maven_jars import cache, digest, fresh, settle

__all__ = ["class_data"]

FILE = "classes.jsa"
SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""What cannot be used, or cannot be written, is told on standard output otherwise."""


def class_data(name: str, class_path: str, run: Callable[[tuple[str, ...]], None]) -> tuple[str, ...]:
    """Options for the virtual machine. The file is made once for each version of Java and each class path: by
    `run`, which runs a program with the options that it gets, to its end."""
    folder = cache() / "class-data"
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}-{digest(class_path.encode(), _java())}"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Other processes of the tests wait: the program is a heavy one.
        if not target.exists():
            made = fresh(target)
            run((f"-XX:ArchiveClassesAtExit={made / FILE}", *SILENT))
            settle(made, target)
    return (f"-XX:SharedArchiveFile={target / FILE}", *SILENT)


@functools.cache
def _java() -> bytes:
    return subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
