"""What a broker makes ready behind its start: in a process of its own, where nothing is there before."""

import subprocess
import sys

import pytest

from odradek.server.background.warm_up import (
    ADMINISTRATION,
    GROUPS,
    RECORDS,
    TRANSACTIONS,
    parts_at_once,
    parts_later,
)

PROGRAM = """
import asyncio
import signal
import sys
import time
from odradek.server.process import main_loop
from odradek.commands.main import main
from odradek.server.background.warm_up import parts_at_once, parts_later

STAGES = [{key for part in parts(()) for key in part.apis} for parts in (parts_at_once, parts_later)]
SEEN = {"odradek.apis.fetch", "odradek.apis.find_coordinator"}

def begin(server):
    deadline = time.monotonic() + 20

    def tell():
        print(*sorted({route >> 16 for route in server.connections.dispatcher.routes.found}))

    def look():
        if time.monotonic() > deadline:
            STAGES.clear()
        elif STAGES and {route >> 16 for route in server.connections.dispatcher.routes.found} >= STAGES[0]:
            tell()
            print(*sorted(SEEN & set(sys.modules)), flush=True)
            del STAGES[0]
        if STAGES:
            asyncio.get_running_loop().call_later(0.005, look)
        else:
            signal.raise_signal(signal.SIGTERM)

    tell()
    look()

run = main_loop.run
main_loop.run = lambda config, on_ready=None: run(config, begin)
sys.exit(main(["serve", "--listen", "127.0.0.1:0", "--data-dir", sys.argv[1]]))
"""


def test_a_new_broker_gets_ready_with_nobody_asking(tmp_path):
    """To write and to read first, a second later for all that clients use."""
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    at_first, records, modules, in_the_end, all_modules = done.stdout.splitlines()
    assert at_first == ""
    assert records == "0 1 2 3 18"
    assert modules == "odradek.apis.fetch"
    parts = (RECORDS, GROUPS, TRANSACTIONS, ADMINISTRATION)
    assert [int(key) for key in in_the_end.split()] == sorted(key for part in parts for key in part.apis)
    assert all_modules == "odradek.apis.fetch odradek.apis.find_coordinator"
    assert "failed" not in done.stderr


@pytest.mark.parametrize(
    ("topics", "more"),
    [
        (["t"], []),
        (["__consumer_offsets"], [GROUPS]),
        (["t", "__consumer_offsets", "__transaction_state"], [GROUPS, TRANSACTIONS]),
    ],
)
def test_groups_and_transactions_are_got_ready_for_first_where_there_were_some(topics, more):
    assert parts_at_once(topics) == [RECORDS, *more]
    assert parts_later(topics) == [
        part for part in (GROUPS, TRANSACTIONS, ADMINISTRATION) if part not in more
    ]
