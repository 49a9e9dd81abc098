"""Sets of jars: what is missing comes by one Maven, once, whole or not at all."""

import pathlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.embedding import maven_jars
from odradek.embedding.maven_jars import JarSet

# A Maven that puts a jar for each dependency of each module where it belongs, and cannot run twice.
MAVEN = """#!{python}
import pathlib, sys
from xml.etree import ElementTree
POM = "{{http://maven.apache.org/POM/4.0.0}}"
pathlib.Path({calls!r}).mkdir()
root = ElementTree.parse("pom.xml")
for module in root.iter(POM + "module"):
    project = ElementTree.parse(module.text + "/pom.xml")
    folder = project.findtext(f".//{{POM}}outputDirectory")
    for dependency in project.iter(POM + "dependency"):
        name = "-".join(dependency.findtext(POM + part) for part in ("artifactId", "version"))
        left_out = [one.text for one in dependency.iterfind(f".//{{POM}}exclusion/{{POM}}artifactId")]
        pathlib.Path(folder, name + ".jar").write_text(" ".join(left_out))
if {fails}:
    sys.exit("no such artifact")
"""
SETS = [
    JarSet("kafka", ["org.apache.kafka:kafka:4.3.1", "org.apache.kafka:tools:4.3.1"], []),
    JarSet("spark", ["org.apache.spark:connector:4.0.0"], ["org.scala-lang:*", "org.apache.hadoop:common"]),
]


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """A function that makes the next call of Maven possible, or fail, and gives the cache."""
    programs = tmp_path / "a & b"
    programs.mkdir()
    calls = programs / "calls"
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("ODRADEK_CACHE", str(programs / "cache"))

    def prepare(fails=False):
        if calls.exists():
            calls.rmdir()
        program = programs / "mvn"
        program.write_text(MAVEN.format(python=sys.executable, calls=str(calls), fails=fails))
        program.chmod(0o755)
        return programs / "cache"

    return prepare


def ignore(text):
    pass


def content(folder: pathlib.Path):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_several_sets_come_by_one_maven_and_then_by_none(maven):
    maven()
    told = []
    kafka, spark = maven_jars.fetch_all(SETS, told.append)
    assert told == ["fetching the jars of kafka, spark"]
    assert content(kafka) == {"kafka-4.3.1.jar": "", "tools-4.3.1.jar": ""}
    assert content(spark) == {"connector-4.0.0.jar": "* common"}
    assert maven_jars.fetch_all(SETS, told.append) == [kafka, spark]
    assert maven_jars.fetch(*SETS[1], told.append) == spark
    assert len(told) == 1


def test_only_what_is_missing_is_fetched(maven):
    maven()
    told = []
    maven_jars.fetch(*SETS[0], told.append)
    maven()
    maven_jars.fetch_all(SETS, told.append)
    assert told == ["fetching the jars of kafka", "fetching the jars of spark"]


def test_of_several_that_want_a_set_one_fetches_it(maven):
    maven()
    together = threading.Barrier(4)

    def fetch(_):
        together.wait()
        return maven_jars.fetch_all(SETS, ignore)

    with ThreadPoolExecutor(4) as pool:
        assert len({tuple(folders) for folders in pool.map(fetch, range(4))}) == 1


def test_a_failed_maven_leaves_nothing_and_is_told(maven):
    cache = maven(fails=True)
    with pytest.raises(maven_jars.JarsMissing, match="of kafka, spark:\nno such artifact"):
        maven_jars.fetch_all(SETS, ignore)
    assert [path for path in (cache / "jars").iterdir() if path.is_dir()] == []


def test_without_maven_the_sets_are_named(maven):
    with pytest.raises(maven_jars.JarsMissing, match=r"of kafka, spark are not there, and without Maven"):
        maven_jars.fetch_all(SETS, ignore)
