"""The README's first command, in copies of the checkout and with an empty cache of environments."""

from __future__ import annotations

import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig

import pytest

from compat_tests.dist.conftest import NOT_OPTIMIZED, USERS
from compat_tests.outside import clean_environment
from odradek.server.process.health import check
from tools import environment as environments
from tools import installer
from tools.build_dists import copy_of_checkout
from tools.environment import ZIGLANG, only_from, wheels


READY_S = 180
STOP_S = 10


def serve(checkout: pathlib.Path, environment: dict[str, str]) -> None:
    """`make serve` in that checkout says that it is ready, answers, and ends with Ctrl-C."""
    make = shutil.which("make")
    assert make is not None
    command = [make, "-s", "serve", f"PYTHON={sys.executable}", "LISTEN=127.0.0.1:0"]
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
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def parts(checkout: pathlib.Path, *kinds: str) -> list[str]:
    return sorted(path.name for kind in kinds for path in checkout.glob(f"*/_*.{kind}"))


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here")
def test_make_serve_makes_its_environment_and_another_checkout_builds_nothing(tmp_path: pathlib.Path) -> None:
    """Of the package index a user's own run asks for what the cache of wheels gives here."""
    environment = clean_environment(
        ODRADEK_CACHE=str(tmp_path / "cache"), **only_from(wheels(*USERS)), **NOT_OPTIMIZED
    )
    first, second = (copy_of_checkout(tmp_path / name) for name in ("first", "second"))
    serve(first, environment)
    assert parts(first, "c")
    serve(second, environment)
    assert parts(second, "c") == []
    assert parts(second, "so") == parts(first, "so") != []


def test_uv_makes_an_environment_on_a_new_machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache is empty: the first try, without the index, fails after it has made the folder."""
    for name in [name for name in os.environ if name.startswith(("UV_", installer.CHOICE))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    program = environments.uv()
    if program is None:
        pytest.skip("there is no uv for this machine")
    chosen = installer.choose([sys.executable, "-m", "pip"], lambda: program, print)
    if not isinstance(chosen, installer.Uv):
        pytest.skip("the configuration of pip is one for pip alone")
    folder = tmp_path / "venv"
    for _ in range(2):  # the second one takes the place of the first
        chosen.make_venv(folder)
        subprocess.run([str(folder / "bin" / "python"), "-c", "import pip"], check=True)


@pytest.mark.nightly
def test_make_serve_takes_ziglang_where_there_is_no_c_compiler(tmp_path: pathlib.Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("make", "sh", "sed", "mkdir", "ln"):
        (programs / name).symlink_to(str(shutil.which(name)))
    environment = clean_environment(
        ODRADEK_CACHE=str(tmp_path / "cache"),
        PATH=str(programs),
        **only_from(wheels(*USERS, ZIGLANG)),
        **NOT_OPTIMIZED,
    )
    environment.pop("CC", None)
    assert not pathlib.Path(sysconfig.get_config_var("CC").split()[0]).is_absolute()
    serve(copy_of_checkout(tmp_path / "checkout"), environment)
    assert (tmp_path / "cache" / "zig").is_dir()
