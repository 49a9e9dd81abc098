"""Sets of jars, each fetched by Maven once into a folder of the cache, outside of any checkout.

A set lives in a folder whose name holds a hash of what was asked for. It is made beside that and renamed when
it is complete. This file imports nothing of ours: `tools/environment.py` loads it, before anything is
installed.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence

__all__ = ["KAFKA", "KAFKA_VERSION", "LOGGING", "JarsMissing", "cache", "digest", "fetch", "fresh", "settle"]

KAFKA_VERSION = "4.3.1"
LOGGING = [
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
    "org.apache.logging.log4j:log4j-1.2-api:2.24.3",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.21.2",
]
KAFKA_PARTS = ["kafka_2.13", "kafka-tools", "kafka-shell", "kafka-streams"]
KAFKA = [f"org.apache.kafka:{part}:{KAFKA_VERSION}" for part in KAFKA_PARTS] + LOGGING
"""Apache Kafka with its tools."""

SHOWN_LINES = 5
"""Of Maven's output, its last ones."""


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


def fetch(
    name: str, wanted: Sequence[str], exclusions: Sequence[str], say: Callable[[str], object]
) -> pathlib.Path:
    """The folder of a set with all that its jars need at run time. `wanted` are GROUP:ARTIFACT:VERSION or
    GROUP:ARTIFACT:VERSION:CLASSIFIER, `exclusions` GROUP:ARTIFACT of what they need and does not come. `say`
    is told of a download. Raises JarsMissing."""
    asked = (list(wanted), list(exclusions))
    folder = cache() / "jars" / f"{name}-{digest(repr(asked).encode())}"
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise JarsMissing(f"the jars of {name} are not there, and without Maven (mvn) nothing fetches them")
    say(f"fetching the jars of {name}")
    made = fresh(folder)
    with tempfile.TemporaryDirectory(prefix="odradek-pom-") as work:
        dependencies = "".join(_dependency(one, exclusions) for one in wanted)
        pathlib.Path(work, "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>odradek</groupId><artifactId>jars</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        finished = subprocess.run(
            [*command, f"-DoutputDirectory={made}"], cwd=work, capture_output=True, text=True
        )
    if finished.returncode != 0:
        shutil.rmtree(made, ignore_errors=True)
        said = "\n".join((finished.stdout + finished.stderr).strip().splitlines()[-SHOWN_LINES:])
        raise JarsMissing(f"Maven could not fetch the jars of {name}:\n{said}")
    settle(made, folder)
    return folder


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
