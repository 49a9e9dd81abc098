"""Versions of APIs in releases of Kafka: our table, Kafka's definitions, and what its broker tells."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator

import pytest

import odradek
from compat_tests import reference
from compat_tests.differential.harness import Side, served_versions, side_of
from odradek.apis.table import MODULES
from odradek.config.api_releases import last_versions
from odradek.wire.messages import versions_of
from tools import environment

TELEMETRY = {71, 72}
"""Kafka and we advertise them only where somebody wants the metrics of clients."""
_NAME = re.compile(r"common/message/\w+Request\.json")


def definitions(version: str) -> Iterator[tuple[int, int]]:
    """Key and last stable version of each API that Kafka's brokers serve, from its own jar."""
    (jar,) = environment.jars(f"kafka-{version}").glob(f"kafka-clients-{version}.jar")
    with zipfile.ZipFile(jar) as files:
        for name in filter(_NAME.fullmatch, files.namelist()):
            lines = files.read(name).decode().splitlines()
            text = "\n".join(re.sub(r'^\s*//.*|\s//[^"]*$', "", line) for line in lines)
            api = json.loads(text)
            if api["validVersions"] != "none" and "broker" in api.get("listeners", ()):
                last = int(api["validVersions"].rpartition("-")[2])
                yield api["apiKey"], last - api.get("latestVersionUnstable", False)


@pytest.mark.parametrize("version", reference.ARCHIVED)
def test_the_table_is_that_of_kafkas_definitions(version: str) -> None:
    table = last_versions(None, ".".join(version.split(".")[:2]))
    theirs = dict(definitions(version))
    # Versions before our first one were an early access.
    known = {
        key: last if (last := theirs.get(key, -1)) >= versions_of(key)[0] else -1 for key in sorted(MODULES)
    }
    assert table == known


def test_a_broker_that_stands_in_for_a_release_advertises_what_it_does() -> None:
    release = ".".join(reference.OLDER.split(".")[:2])
    with reference.Kafka(reference.OLDER) as kafka, odradek.Broker(emulate=release) as broker:
        theirs = last_served(side_of("kafka", kafka.bootstrap_servers))
        ours = last_served(side_of("odradek", broker.bootstrap_servers))
    assert ours == {key: last for key, last in theirs.items() if key in MODULES and key not in TELEMETRY}


def last_served(side: Side) -> dict[int, int]:
    return {key: versions[-1] for key, versions in served_versions(side).items()}
