"""Sets of jars, each fetched by Maven once into a folder of the cache, outside of any checkout.

A set lives in a folder whose name holds a hash of what was asked for. It is made beside that and renamed when
it is complete; who wants it meanwhile waits. This file imports nothing of ours: `tools/environment.py` loads
it, before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

KAFKA_VERSION = "4.4.0"
JACKSON = {"4.3.1": "2.21.2", "4.4.0": "2.21.7"}
"""Release of Kafka -> the Jackson that it comes with. Its modules must all be of one release."""
LOGGING_PARTS = ["log4j-slf4j-impl", "log4j-core", "log4j-1.2-api"]
KAFKA_PARTS = ["kafka_2.13", "kafka-tools", "kafka-streams"]


def kafka(version: str) -> list[str]:
    """Apache Kafka 4 with its tools, and what it needs to write a log."""
    return [
        *(f"org.apache.kafka:{part}:{version}" for part in KAFKA_PARTS),
        *(f"org.apache.logging.log4j:{part}:2.24.3" for part in LOGGING_PARTS),
        f"com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:{JACKSON[version]}",
    ]


KAFKA = kafka(KAFKA_VERSION)

SHOWN_LINES = 5
"""Last lines of Maven's output that an error shows."""
MAVEN_THREADS = 4
"""Sets that Maven works on at once: it mostly waits for responses."""
MAVEN_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Options of its virtual machine, which ends before much compiling would pay."""


class JarsMissing(subprocess.SubprocessError):
    """A set could not be fetched; the text is one sentence, and what Maven said."""


def cache() -> pathlib.Path:
    """The folder for everything that is made once: $ODRADEK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("ODRADEK_CACHE")
    if not chosen:
        chosen = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "odradek")
    folder = pathlib.Path(chosen).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*parts: bytes) -> str:
    """For the name of a folder: of what it is made from."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:16]


def fresh(target: pathlib.Path) -> pathlib.Path:
    """An empty folder beside `target`, to be renamed to it when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))


def settle(made: pathlib.Path, target: pathlib.Path) -> None:
    """The rename."""
    try:
        made.rename(target)
    except OSError:  # another run was faster; its result is as good
        shutil.rmtree(made, ignore_errors=True)
        if not target.exists():
            raise


@contextlib.contextmanager
def alone(target: pathlib.Path) -> Iterator[None]:
    """Waits until nobody else, thread or process, makes `target`: what is there then, need not be made again.
    The lock ends with its process, its empty file stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_name(f".{target.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class JarSet(NamedTuple):
    name: str
    wanted: Sequence[str]
    """GROUP:ARTIFACT:VERSION or GROUP:ARTIFACT:VERSION:CLASSIFIER."""
    exclusions: Sequence[str]
    """GROUP:ARTIFACT of what they need and does not come."""

    def folder(self) -> pathlib.Path:
        asked = (list(self.wanted), list(self.exclusions))
        return cache() / "jars" / f"{self.name}-{digest(repr(asked).encode())}"


def fetch(
    name: str, wanted: Sequence[str], exclusions: Sequence[str], say: Callable[[str], object]
) -> pathlib.Path:
    """The folder of one set with all that its jars need at run time, as by `fetch_all`."""
    return fetch_all([JarSet(name, wanted, exclusions)], say)[0]


def fetch_all(sets: Sequence[JarSet], say: Callable[[str], object]) -> list[pathlib.Path]:
    """The folder of each set with all that its jars need at run time. One Maven fetches all that are missing:
    most of the time of a small one is its start. `say` is told of a download. Raises JarsMissing."""
    folders = [one.folder() for one in sets]
    wanted = {one.folder(): one for one in sets if not one.folder().exists()}
    with contextlib.ExitStack() as locks:
        for folder in sorted(wanted):  # in one order, lest two processes wait for each other for ever
            locks.enter_context(alone(folder))
        missing = [one for folder, one in wanted.items() if not folder.exists()]
        if missing:
            _fetch(missing, say)
    return folders


def _fetch(sets: Sequence[JarSet], say: Callable[[str], object]) -> None:
    names = ", ".join(one.name for one in sets)
    if shutil.which("mvn") is None:
        raise JarsMissing(f"the jars of {names} are not there, and without Maven (mvn) nothing fetches them")
    say(f"fetching the jars of {names}")
    made = {one.folder(): fresh(one.folder()) for one in sets}
    with tempfile.TemporaryDirectory(prefix="odradek-pom-") as work:
        _write_project(pathlib.Path(work), {str(made[one.folder()]): one for one in sets})
        finished = _run_maven(work)
    if finished.returncode != 0:
        for folder in made.values():
            shutil.rmtree(folder, ignore_errors=True)
        said = "\n".join((finished.stdout + finished.stderr).strip().splitlines()[-SHOWN_LINES:])
        raise JarsMissing(f"Maven could not fetch the jars of {names}:\n{said}")
    for target, folder in made.items():
        settle(folder, target)


def _run_maven(work: str) -> subprocess.CompletedProcess[str]:
    command = ["mvn", "-q", "-B", f"-T{MAVEN_THREADS}", "dependency:copy-dependencies"]
    return subprocess.run(
        [*command, "-DincludeScope=runtime"],
        cwd=work,
        env={"MAVEN_OPTS": MAVEN_OPTIONS, **os.environ},
        capture_output=True,
        text=True,
    )


def _write_project(work: pathlib.Path, sets: dict[str, JarSet]) -> None:
    """A project for Maven: a module for each set, whose jars go into its folder."""
    modules = []
    for number, (folder, one) in enumerate(sets.items()):
        dependencies = "".join(_dependency(wanted, one.exclusions) for wanted in one.wanted)
        module = f"set-{number}"
        (work / module).mkdir()
        (work / module / "pom.xml").write_text(
            _project(
                module,
                f"<properties><outputDirectory>{escape(folder)}</outputDirectory></properties>"
                f"<dependencies>{dependencies}</dependencies>",
            )
        )
        modules.append(f"<module>{module}</module>")
    text = f"<packaging>pom</packaging><modules>{''.join(modules)}</modules>"
    (work / "pom.xml").write_text(_project("jars", text))


def _project(name: str, content: str) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>odradek</groupId><artifactId>{name}</artifactId><version>1</version>{content}</project>"
    )


def _dependency(coordinates: str, exclusions: Sequence[str]) -> str:
    group, artifact, version, *classifiers = coordinates.split(":")
    classifier = "".join(f"<classifier>{one}</classifier>" for one in classifiers)
    excluded = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(*one.split(":"))
        for one in exclusions
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{classifier}"
        f"<exclusions>{excluded}</exclusions></dependency>"
    )
