"""What is published, tried where it was installed: no checkout, and only the declared dependencies."""

from __future__ import annotations

import json
import pathlib
import re
import select
import signal
import subprocess
import time

import pytest

from compat_tests.dist.conftest import PATIENCE_S, USERS, Installed, empty
from compat_tests.outside import clean_environment
from tools.build_dists import CHECKOUT, Dists
from tools.environment import only_from, wheels

pytestmark = [
    pytest.mark.xdist_group("dists"),  # built once
    pytest.mark.in_order,  # `users` installs more into the environments
]

BROKER_NEEDS = {"uvloop", "crc32c", "lz4", "zstandard", "python-snappy", "google-re2"}
PIP_BRINGS = {"pip", "setuptools", "wheel"}
READY_S = 20
STOP_S = 10

LIGHT = """
import sys, odradek
assert odradek.__file__.startswith(sys.prefix), odradek.__file__
print(*sorted({"asyncio", "uvloop", "socket", "odradek.server", "odradek.wire"} & set(sys.modules)))
"""

PRODUCED = """
import odradek
from odradek.server.process.health import check
with odradek.Broker(process={process}) as broker:
    assert check(broker.bootstrap_servers) is None
"""

COMPACTED = """
import asyncio, os, tempfile, time
from odradek.server.background.cleaner import CleanerOptions, LogCleaner
from odradek.server.network.timers import Timers, wall_clock_ms
from odradek.server.background.work import WorkQueue
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.directories.store import LogStore
from odradek.wire.records import build_batch

async def main(directory):
    loop, config = asyncio.get_running_loop(), LogConfig(cleanup_policy=frozenset({"compact"}))
    store = LogStore(OsDisk(), [directory], config_for=lambda topic: config)
    store.open(wall_clock_ms())
    partition = store.create("t", 0, bytes(16), config)
    for value in (b"old", b"new"):
        partition.appends.append(build_batch([(0, wall_clock_ms(), b"key", value)]), now_ms=wall_clock_ms())
        partition.commit()
    partition.log.roll(wall_clock_ms())
    partition.flush()
    upkeep, timers = WorkQueue(loop), Timers(loop)
    driver = LogCleaner(
        store.cleaner, store.disk, upkeep, timers, timers, wall_clock_ms, CleanerOptions()
    )
    driver.start()
    deadline = time.monotonic() + 30
    while store.checkpointing.first_dirty_of(partition) != 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    print(store.checkpointing.first_dirty_of(partition), len(driver.pids), os.getpid() not in driver.pids)
    driver.close()
    upkeep.close()
    store.close(wall_clock_ms())

with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
"""

SPARK_FORMATS = """
import pkgutil, sys
found = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
import odradek.spark, pyspark_odradek, pyspark_odradek_log
print(*sorted(found), *sorted({"pyspark", "pyarrow", "odradek.wire"} & set(sys.modules)))
"""

USERS_TESTS = """
from kafka import KafkaProducer

def test_a_record_is_taken(odradek_broker):
    with KafkaProducer(bootstrap_servers=odradek_broker.bootstrap_servers) as producer:
        assert producer.send("orders", b"one").get(timeout=10).offset == 0

def test_a_broker_of_ones_own(odradek_fresh_broker):
    odradek_fresh_broker.restart()
"""


def test_an_install_brings_what_a_broker_needs_and_nothing_else(installed: Installed) -> None:
    listed = json.loads(installed.run(installed.python, "-m", "pip", "list", "--format=json"))
    names = {one["name"].lower() for one in listed}
    assert (
        names - PIP_BRINGS - {"odradek", "cramjam"} == BROKER_NEEDS
    )  # python-snappy is written over cramjam
    installed.run(installed.python, "-m", "pip", "check")


def test_the_version_says_whether_uvloop_is_there(installed: Installed) -> None:
    assert "uvloop: yes" in installed.run(installed.odradek, "--version")


@pytest.mark.parametrize("compiler", ["/bin/false", "/nowhere/cc"])
def test_an_install_from_source_says_in_a_sentence_that_it_needs_a_c_compiler(
    dists: Dists, tmp_path: pathlib.Path, compiler: str
) -> None:
    python = empty(tmp_path)
    finished = subprocess.run(
        [python.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(dists.sdist)],
        cwd=python.home,
        env=clean_environment(CC=compiler, **only_from(wheels(*USERS))),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert finished.returncode != 0
    (sentence,) = [line.strip() for line in finished.stderr.splitlines() if "Odradek" in line]
    assert sentence.startswith("Odradek is built from its sources here, for which it needs a C compiler")
    assert "Traceback" not in finished.stderr


def test_the_import_is_light(installed: Installed) -> None:
    assert installed.run(installed.python, "-c", LIGHT).strip() == ""


def test_spark_finds_the_formats_where_odradek_is_installed_and_imports_nothing_by_looking(
    installed: Installed,
) -> None:
    found = installed.run(installed.python, "-c", SPARK_FORMATS).split()
    assert found == ["pyspark_odradek", "pyspark_odradek_log"]


def test_compaction_has_a_process_of_its_own(installed: Installed) -> None:
    assert installed.run(installed.python, "-c", COMPACTED).split() == ["2", "1", "True"]


def test_serve_is_ready_answers_and_stops(installed: Installed) -> None:
    command = [installed.python, "-m", "odradek", "serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    with subprocess.Popen(
        command,
        cwd=installed.home,
        env=clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert select.select([process.stdout], [], [], READY_S)[0], "no ready line"
            ready = re.fullmatch(r"odradek \S+ ready on (127\.0\.0\.1:\d+) .*\n", process.stdout.readline())
            assert ready
            installed.run(installed.python, "-m", "odradek.server.process.health", ready[1])
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            assert time.monotonic() - asked < STOP_S
        finally:
            process.kill()


def test_what_the_broker_wrote_can_be_dumped(installed: Installed) -> None:
    assert installed.run(installed.odradek, "dump", "data")


def test_a_broker_in_python_runs_as_thread_and_as_process(installed: Installed) -> None:
    for process in (False, True):
        installed.run(installed.python, "-c", PRODUCED.format(process=process))


def test_the_fixtures_are_there_in_a_project_that_only_has_the_wheel(users: Installed) -> None:
    (users.home / "test_orders.py").write_text(USERS_TESTS)
    assert "2 passed" in users.run(
        users.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"
    )


def test_the_quick_start_of_the_readme_prints_what_was_sent(users: Installed) -> None:
    readme = (CHECKOUT / "README.md").read_text()
    (example,) = re.findall(r"## Quick start\n.*?```python\n(.*?)```", readme, re.DOTALL)
    assert users.run(users.python, "-c", example).strip() == "b'hello'"
