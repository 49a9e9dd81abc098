"""Apache Kafka's own programs, as far as a cluster of ours needs them: its controllers, and its storage tool.

They need Java 17 or later, and Kafka's jars: those in the folder that ODRADEK_KAFKA_LIBS names, such as
`libs` of an unpacked Kafka 4, else those that Maven fetches once into the cache (`maven_jars`).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.config.properties import format_properties
from odradek.embedding import maven_jars
from odradek.embedding.cluster_processes import ClusterStartError

LIBS_VARIABLE = "ODRADEK_KAFKA_LIBS"
JAVA_MIN, KAFKA_MIN = 17, 4
JAVA_PACKAGE = "openjdk-17-jre-headless"
TOOL_JVM = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"),
    "-Dlog4j2.level=ERROR",
)
"""For a tool that lives a second: most of it goes into the start of the virtual machine. It keeps
no data for jstat: now and then a virtual machine warns about the file of that data on its standard output."""
CONTROLLER_JVM = ("-Xms64m", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

logger = logging.getLogger("odradek.cluster")


class KafkaPrograms(NamedTuple):
    """Where Java and Kafka's jars are."""

    java: str
    class_path: str
    options: tuple[str, ...] = ()
    """Arguments for the Java virtual machine of each program."""

    def command(self, main_class: str, *arguments: str, jvm: tuple[str, ...] = TOOL_JVM) -> list[str]:
        """To run one of Kafka's programs."""
        return [self.java, *jvm, *self.options, "-cp", self.class_path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a tool to its end, whatever its status is."""
        return subprocess.run(self.command(main_class, *arguments), capture_output=True, text=True)


def find_kafka() -> KafkaPrograms:
    """Raises ClusterStartError with a sentence that says what is missing."""
    return KafkaPrograms(_java(), _class_path())


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    folders = [os.path.join(home, "bin")] if home else []
    java = shutil.which("java", path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    wanted = f"Apache Kafka's controllers need Java {JAVA_MIN} or later"
    if java is None:
        raise ClusterStartError(
            f"{wanted}, and there is no java: install a JRE (Debian: apt-get install {JAVA_PACKAGE}), or set "
            "JAVA_HOME"
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True)
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if version is None or int(version[1]) < JAVA_MIN:
        found = "has no version" if version is None else f"is version {version[1]}"
        raise ClusterStartError(
            f"{wanted}, and {java} {found}: install a newer one (Debian: apt-get install {JAVA_PACKAGE}), or "
            "set JAVA_HOME"
        )
    return java


def _class_path() -> str:
    folder = os.environ.get(LIBS_VARIABLE)
    if folder:
        return f"{_with_kafka(folder)}/*"
    try:
        jars = maven_jars.fetch(f"kafka-{maven_jars.KAFKA_VERSION}", maven_jars.KAFKA, [], logger.info)
    except maven_jars.JarsMissing as error:
        first, _, rest = str(error).partition("\n")
        raise ClusterStartError(
            f"{first.rstrip(':')}: install Maven (Debian: apt-get install maven) and let it reach a "
            f"repository, or set {LIBS_VARIABLE} to the folder libs of an unpacked Apache Kafka {KAFKA_MIN}"
            + (f"\n{rest}" if rest else "")
        ) from error
    return f"{jars}/*"


def _with_kafka(folder: str) -> str:
    wanted = f"name the folder libs of an unpacked Apache Kafka {KAFKA_MIN}"
    versions = [
        found[1]
        for path in sorted(Path(folder).glob("kafka_2.1*.jar"))
        if (found := re.fullmatch(r"kafka_2\.1\d-(\d+)\.[\d.]+\.jar", path.name))
    ]
    if not versions:
        raise ClusterStartError(f"{LIBS_VARIABLE}={folder} has no kafka_2.13-*.jar: {wanted}")
    if int(versions[0]) < KAFKA_MIN:
        raise ClusterStartError(f"{LIBS_VARIABLE}={folder} has Apache Kafka {versions[0]}: {wanted}")
    return folder


def controller_properties(
    node_id: int,
    port: int,
    data_dir: Path,
    bootstrap_servers: str,
    more: Mapping[str, str],
    *,
    advertised_port: int | None = None,
) -> str:
    """A server.properties of one controller of this machine; `bootstrap_servers` are all of them, and `more`
    goes before what is said here."""
    properties = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": bootstrap_servers,
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
    }
    if advertised_port is not None:
        properties["advertised.listeners"] = f"CONTROLLER://127.0.0.1:{advertised_port}"
    return format_properties({**properties, **more})


def format_directory(kafka: KafkaPrograms, cluster_id: str, config: Path, *arguments: str) -> None:
    """Has Kafka's storage tool format the directories that a server.properties names. `arguments` say of
    which quorum the node is. Raises ClusterStartError with what the tool said."""
    asked = ("format", "-t", cluster_id, "-c", str(config), *arguments)
    finished = kafka.run("kafka.tools.StorageTool", *asked)
    if finished.returncode != 0:
        said = (finished.stdout + finished.stderr).strip()
        raise ClusterStartError(f"Kafka's storage tool could not format a directory for {config}:\n{said}")
