"""What a broker makes ready behind its start: in a process of its own, where nothing is there before."""

import subprocess
import sys

import pytest

from odradek.server.warm_up import keys_of_apis

PROGRAM = """
import asyncio
import signal
import sys
import time
from odradek.server import main_loop
from odradek.server.cli import main
from odradek.server.warm_up import keys_of_apis

def found(server):
    return {route >> 16 for route in server._connections.routes.found}

def begin(server):
    wanted = set(keys_of_apis(()))
    deadline = time.monotonic() + 20
    print(*sorted(found(server)))

    def look():
        if found(server) >= wanted or time.monotonic() > deadline:
            print(*sorted(found(server)))
            print(*sorted({"odradek.apis.fetch", "odradek.apis.groups"} & set(sys.modules)), flush=True)
            signal.raise_signal(signal.SIGTERM)
        else:
            asyncio.get_running_loop().call_later(0.005, look)

    look()

run = main_loop.run
main_loop.run = lambda config, on_ready=None: run(config, begin)
sys.exit(main(["serve", "--listen", "127.0.0.1:0", "--data-dir", sys.argv[1]]))
"""


def test_a_new_broker_gets_ready_to_write_and_read_with_nobody_asking(tmp_path):
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    at_first, in_the_end, modules = done.stdout.splitlines()
    assert at_first == ""
    assert in_the_end == "0 1 2 3 18"
    assert modules == "odradek.apis.fetch"
    assert "failed" not in done.stderr


JOIN_GROUP, END_TXN = 11, 26


@pytest.mark.parametrize(
    ("topics", "more"),
    [
        (["t"], set()),
        (["__consumer_offsets"], {JOIN_GROUP}),
        (["t", "__consumer_offsets", "__transaction_state"], {JOIN_GROUP, END_TXN}),
    ],
)
def test_groups_and_transactions_are_got_ready_for_where_there_were_some(topics, more):
    assert {*keys_of_apis(topics)} & {JOIN_GROUP, END_TXN} == more
