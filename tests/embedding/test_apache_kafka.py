"""What is missing for Apache Kafka's controllers is said in one sentence; a server.properties is written."""

import pathlib

import pytest

from odradek.config.broker_config import load
from odradek.config.properties import parse_properties
from odradek.embedding.apache_kafka import (
    LIBS_VARIABLE,
    KafkaPrograms,
    controller_properties,
    find_kafka,
    format_directory,
)
from odradek.embedding.cluster_processes import ClusterStartError

TOLD = 'openjdk version "17.0.9" 2023-10-17'


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with nothing on its path, no Java elsewhere, and an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(LIBS_VARIABLE, raising=False)
    return programs


def install(folder, name, script):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def libs(tmp_path, *names):
    folder = tmp_path / "libs"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return str(folder)


def test_without_java_a_sentence_says_what_to_install(machine):
    with pytest.raises(ClusterStartError) as refused:
        find_kafka()
    assert str(refused.value) == (
        "Apache Kafka's controllers need Java 17 or later, and there is no java: install a JRE "
        "(Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    )


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "is version 11"),
        ('java version "1.8.0_402"', "is version 8"),
        ("Unable to locate a Java Runtime.", "has no version"),
    ],
)
def test_an_old_java_is_named_with_its_version(machine, told, found):
    install(machine, "java", f"echo '{told}' >&2")
    with pytest.raises(ClusterStartError, match=f"17 or later, and {machine}/java {found}: "):
        find_kafka()


def test_the_java_of_java_home_is_taken_before_that_of_the_path(machine, tmp_path, monkeypatch):
    install(machine, "java", "echo 'version \"11\"' >&2")
    install(tmp_path / "home" / "bin", "java", f"echo '{TOLD}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    folder = libs(tmp_path, "kafka_2.13-4.1.0.jar")
    monkeypatch.setenv(LIBS_VARIABLE, folder)
    assert find_kafka() == KafkaPrograms(str(tmp_path / "home" / "bin" / "java"), f"{folder}/*")


def test_a_folder_without_kafka_is_refused(machine, tmp_path, monkeypatch):
    install(machine, "java", f"echo '{TOLD}' >&2")
    folder = libs(tmp_path, "kafka-clients-4.1.0.jar", "kafka_2.13-4.1.0-sources.jar")
    monkeypatch.setenv(LIBS_VARIABLE, folder)
    with pytest.raises(ClusterStartError) as refused:
        find_kafka()
    assert str(refused.value) == (
        f"{LIBS_VARIABLE}={folder} has no kafka_2.13-*.jar: "
        "name the folder libs of an unpacked Apache Kafka 4"
    )


def test_an_old_kafka_is_refused(machine, tmp_path, monkeypatch):
    install(machine, "java", f"echo '{TOLD}' >&2")
    monkeypatch.setenv(LIBS_VARIABLE, libs(tmp_path, "kafka_2.13-3.9.1.jar"))
    with pytest.raises(ClusterStartError, match="has Apache Kafka 3: name the folder libs of an unpacked"):
        find_kafka()


def test_without_jars_and_maven_a_sentence_says_what_to_do(machine):
    install(machine, "java", f"echo '{TOLD}' >&2")
    with pytest.raises(ClusterStartError) as refused:
        find_kafka()
    assert str(refused.value) == (
        "the jars of kafka-4.4.0 are not there, and without Maven (mvn) nothing fetches them: install Maven "
        "(Debian: apt-get install maven) and let it reach a repository, or set ODRADEK_KAFKA_LIBS to the "
        "folder libs of an unpacked Apache Kafka 4"
    )


def test_what_maven_says_is_told(machine):
    install(machine, "java", f"echo '{TOLD}' >&2")
    install(machine, "mvn", "echo 'Network is unreachable'; exit 1")
    with pytest.raises(ClusterStartError) as refused:
        find_kafka()
    first, last = str(refused.value).splitlines()
    assert first.startswith("Maven could not fetch the jars of kafka-4.4.0: install Maven")
    assert last == "Network is unreachable"


def test_jars_are_fetched_once(machine, tmp_path):
    install(machine, "java", f"echo '{TOLD}' >&2")
    install(machine, "mvn", f"echo fetched >> {tmp_path}/calls")
    first = find_kafka()
    assert find_kafka() == first
    assert (tmp_path / "calls").read_text() == "fetched\n"
    folder = pathlib.Path(first.class_path.removesuffix("/*"))
    assert folder.is_dir()
    assert folder.parent == tmp_path / "cache" / "jars"


def test_what_the_storage_tool_says_is_told(machine, tmp_path):
    install(machine, "java", "echo 'Log directory is already formatted.' >&2; exit 1")
    programs = KafkaPrograms(str(machine / "java"), "libs/*")
    with pytest.raises(
        ClusterStartError, match=r"could not format .*\nLog directory is already formatted\.$"
    ):
        format_directory(programs, "some-cluster", tmp_path / "server.properties", "--standalone")


def test_the_properties_of_a_controller_have_its_link_and_the_options_that_are_given(tmp_path):
    more = {"min.insync.replicas": "2"}
    text = controller_properties(1001, 9093, tmp_path / "dätä \\ here", "h:1,h:2", more, advertised_port=9999)
    properties = parse_properties(text.encode("ascii"))
    assert properties["listeners"] == "CONTROLLER://127.0.0.1:9093"
    assert properties["advertised.listeners"] == "CONTROLLER://127.0.0.1:9999"
    assert properties["log.dirs"] == str(tmp_path / "dätä \\ here")
    assert properties["min.insync.replicas"] == "2"
    config = tmp_path / "server.properties"
    config.write_text(text)
    with pytest.raises(Exception, match=r"process\.roles"):
        load(config)  # which is for brokers
