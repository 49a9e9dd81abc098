"""Java sources of the tests: compiled once, and run in a virtual machine of their own."""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess

from odradek.embedding.apache_kafka import TOOL_JVM
from odradek.embedding.maven_jars import cache, digest, fresh, settle

CLIENTS = pathlib.Path(__file__).parent.parent / "clients" / "java"
"""Where programs of clients are."""
SMALL_JVM = [*TOOL_JVM]
"""For programs that live a second: the time goes into starting the JVM."""


@functools.cache
def java_version() -> int:
    """Its first number."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', told)
    assert found is not None, told
    return int(found[1])


def compiled(class_path: str, *sources: pathlib.Path) -> pathlib.Path:
    """The folder of the classes of these sources, which are compiled against `class_path` once."""
    name = digest(class_path.encode(), *(source.read_bytes() for source in sources))
    target = cache() / "classes" / f"{sources[0].stem}-{name}"
    if not target.exists():
        made = fresh(target)
        command = ["javac", "-nowarn", "-Xlint:none", "-d", str(made), *map(str, sources)]
        finished = subprocess.run([*command, "-cp", class_path], capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        settle(made, target)
    return target


def compile_java(class_path: str, *sources: pathlib.Path) -> str:
    """Compiles files against `class_path`, once; the class path with which to run them."""
    # Last: archives for class data sharing are for class paths that begin with that of Kafka.
    return f"{class_path}:{compiled(class_path, *sources)}"
