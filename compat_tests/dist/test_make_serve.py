"""The README's first command, in a copy of the checkout and with an empty cache of environments."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import signal
import subprocess
import sys

from compat_tests.dist.conftest import USERS
from compat_tests.outside import clean_environment
from odradek.server.health import check
from tools.build_dists import copy_of_checkout
from tools.environment import only_from, wheels

READY_S = 120
STOP_S = 10


def test_make_serve_makes_its_environment_and_starts_a_broker(tmp_path: pathlib.Path) -> None:
    """Of the package index a user's own run asks for what the cache of wheels gives here."""
    checkout = copy_of_checkout(tmp_path / "checkout")
    environment = clean_environment(ODRADEK_CACHE=str(tmp_path / "cache"), **only_from(wheels(*USERS)))
    command = ["make", "-s", "serve", f"PYTHON={sys.executable}", "LISTEN=127.0.0.1:0"]
    process = subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], READY_S)
        assert readable, "nothing is said"
        ready = process.stdout.readline()
        found = re.fullmatch(r"odradek \S+ ready on (127\.0\.0\.1:\d+) \(node 1, .*, data (.+)\)\n", ready)
        assert found, ready
        address, data = found.groups()
        assert check(address) is None
        assert (checkout / "data").samefile(checkout / data)
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C is for make and the broker
        process.wait(STOP_S)
        assert (checkout / "data" / ".kafka_cleanshutdown").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
