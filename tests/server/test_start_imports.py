"""A start imports what the first request needs, and no more: that keeps it under 150 ms. So does a program
that takes only a part of the package.
"""

import subprocess
import sys

import pytest

NOT_NEEDED = (
    "crc32c",
    "cryptography",
    "difflib",
    "hashlib",
    "hmac",
    "importlib.metadata",
    "jwt",
    "odradek.apis.controller",
    "odradek.apis.find_coordinator",
    "odradek.apis.metadata",
    "odradek.config.broker_security",
    "odradek.config.cluster_config",
    "odradek.config.listener_security",
    "odradek.config.oauthbearer",
    "odradek.coordinator.group_coordinator",
    "odradek.coordinator.security.acls",
    "odradek.coordinator.transactions.coordinator",
    "odradek.offline",
    "odradek.client",
    "odradek.server.metadata.member_directories",
    "odradek.server.metrics",
    "odradek.server.network.slow_requests",
    "odradek.server.process.systemd",
    "odradek.coordinator.security.client_meters",
    "odradek.coordinator.security.quota_meters",
    "odradek.server.security.authorizer",
    "odradek.server.security.sasl",
    "odradek.server.security.tokens",
    "odradek.server.security.tls",
    "odradek.server.network.tls_transport",
    "odradek.server.security.users",
    "odradek.storage.compaction.cleaner",
    "shutil",
    "uuid",
)

PROGRAM = """
import sys
from odradek.server.process import main_loop
from odradek.commands.main import main

def stop_at_once(server):
    print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
    raise KeyboardInterrupt

run = main_loop.run
main_loop.run = lambda config, on_ready=None: run(config, stop_at_once)
try:
    main(["serve", "--listen", "127.0.0.1:0", "--data-dir", {directory!r}])
except KeyboardInterrupt:
    pass
"""


def printed(program, *arguments):
    """What a new process of Python prints that runs this program."""
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_a_broker_that_is_ready_has_not_imported_what_it_may_never_need(tmp_path):
    assert printed(PROGRAM.format(directory=str(tmp_path / "data")), *NOT_NEEDED) == ""


@pytest.mark.parametrize(
    ("imported", "not_needed"),
    [
        ("odradek.wire.frames", ["odradek.wire.messages."]),
        (
            "odradek.wire.records, odradek.wire.legacy_records, odradek.wire.batch_validation",
            ["lz4", "zstandard", "snappy", "cramjam"],
        ),
        ("odradek.wire.records", ["argparse", "importlib.metadata", "crc32c"]),
        ("odradek.config.broker_config as config; config.load()", ["odradek.config.listener_security"]),
    ],
)
def test_a_part_of_the_package_imports_only_its_own_needs(imported, not_needed):
    found = "print(*(name for name in sys.modules if name.startswith(tuple(sys.argv[1:]))))"
    assert printed(f"import sys, {imported}\n{found}", *not_needed) == ""
