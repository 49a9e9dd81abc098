"""Archives for class data sharing, as Java calls it: a virtual machine maps classes from such a file, instead
of loading and verifying them from jars.

Up to half of the processor time of a short program goes into that. A virtual machine of another version, or
with a class path that does not begin with the one of the archive, works without it and says nothing.
"""

from __future__ import annotations

import fcntl
import functools
import subprocess
from collections.abc import Callable

from odradek.embedding.maven_jars import cache, digest, fresh, settle

__all__ = ["class_data"]

FILE = "classes.jsa"
SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""What cannot be used, or cannot be written, is told on standard output otherwise."""


def class_data(name: str, class_path: str, run: Callable[[tuple[str, ...]], None]) -> tuple[str, ...]:
    """Options for the virtual machine. The archive is made once for each version of Java and each class path.
    `run` makes it: it runs a program with the options that it is given, and returns at the program's end."""
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
