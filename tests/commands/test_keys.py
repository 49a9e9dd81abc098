"""The keys of `--output json` are those that the help of each command names, action by action."""

import io
import re
import sys
import time

import pytest

import odradek
from odradek.client.group_member import GroupMember
from odradek.client.member_settings import MemberSettings
from odradek.commands.command import COMMANDS
from odradek.commands.page import page
from tests.client.applications import KEEPING, start_application
from tests.client.topics import Transactions, create_topic, produce

TOPIC, GROUP, USER = "orders", "billing", "ann"
SCRAM = ["--mechanism", "SCRAM-SHA-256"]
ACL = ["--principal", f"User:{USER}", "--operation", "READ", "--topic", TOPIC]
QUOTA = ["--user", USER]
RUN = {
    ("topics", "list"): [[], ["--sizes"]],
    ("topics", "describe"): [[TOPIC], [TOPIC, "--times"]],
    ("topics", "create"): [["made"]],
    ("topics", "add-partitions"): [["made", "7"]],
    ("topics", "trim"): [[TOPIC, "--before", "1"]],
    ("topics", "offsets"): [[TOPIC], [TOPIC, "--at", "-1h"]],
    ("topics", "delete"): [["made"]],
    ("groups", "seek"): [[GROUP, "--to", "start", "--topics", TOPIC]],
    ("groups", "list"): [[], ["--lag"]],
    ("groups", "describe"): [[GROUP], ["held", "--members"], ["words", "--topology"]],
    ("groups", "delete-offsets"): [[GROUP, TOPIC]],
    ("groups", "delete"): [[GROUP, "--dry-run"]],
    ("transactions", "list"): [[]],
    ("transactions", "describe"): [["pay"]],
    ("producers", ""): [[TOPIC]],
    ("configs", "get"): [[f"topic:{TOPIC}"]],
    ("configs", "set"): [[f"topic:{TOPIC}", "retention.ms=5000000000"]],
    ("configs", "diff"): [[f"topic:{TOPIC}"]],
    ("configs", "unset"): [[f"topic:{TOPIC}", "retention.ms"]],
    ("acls", "add"): [ACL],
    ("acls", "list"): [[]],
    ("acls", "remove"): [ACL],
    ("users", "add"): [[USER, *SCRAM]],
    ("users", "list"): [[]],
    ("users", "remove"): [[USER, *SCRAM]],
    ("quotas", "set"): [["producer_byte_rate=1000000", *QUOTA]],
    ("quotas", "list"): [[]],
    ("quotas", "remove"): [QUOTA],
    ("cluster", "info"): [[]],
    ("cluster", "health"): [["--min-free", "0"]],
    ("cluster", "features"): [[]],
    ("cluster", "log-dirs"): [[]],
    ("cluster", "unregister"): [["1", "--dry-run"]],
    ("config", "path"): [[]],
    ("config", "set"): [["live", "bootstrap.servers=localhost:1"]],
    ("config", "set-password"): [["live"]],
    ("config", "list"): [[]],
    ("config", "use"): [["live"]],
    ("config", "unset"): [["live"]],
    ("doctor", ""): [["--write"]],
    ("bench", "produce"): [["--records", "10"]],
    ("bench", "consume"): [["--records", "10"]],
    ("bench", "roundtrip"): [["--records", "1"]],
}
"""What is run of each action, in an order in which each has something to show."""
ELSEWHERE = {
    *(("transactions", "find-hanging"), ("transactions", "abort")),
    *(("topics", "move"), ("cluster", "elect")),
    ("backup", ""),  # tests/server/test_backup.py
    ("snapshot", ""),  # tests/server/test_kit_snapshots.py
}
"""test_transactions.py has a transaction that hangs, and compares all of their keys; a broker alone has
nothing to move or to elect (compat_tests/commands/test_cluster_health.py)."""


def with_output():
    """Command and action of all that have `--output`; "" where a command has no actions."""
    sections = re.findall(r"^##+ odradek (\S+) ?(\S*)\n(.*?)(?=^##|\Z)", page(), re.MULTILINE | re.DOTALL)
    return {(command, action) for command, action, text in sections if "--output {table" in text}


def named(command, action):
    """The keys that the help names."""
    text = COMMANDS[command].load().EXAMPLES
    found = set()
    for actions, body in re.findall(r"^keys(?: of ([^:]+))?: ([^.:]*)[.:]", text, re.MULTILINE):
        if not actions or action in re.split(r", | and | --(?:members|topology)", actions):
            found |= set(re.findall(r"(?<![-\w])[a-z_][a-z0-9_]*", body)) - {"with", "or", "too"}
    return found


@pytest.fixture(scope="module")
def broker():
    options = {
        **KEEPING,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with odradek.Broker(options=options) as running:
        yield running


def test_each_action_is_tried():
    assert RUN.keys() | ELSEWHERE == with_output()


def test_the_keys_are_those_that_the_help_names(odradek_command, run, cluster, monkeypatch):
    create_topic(cluster, 1, TOPIC)
    produce(cluster, TOPIC, 0, [b"v"] * 3)
    Transactions(cluster, "pay").write(TOPIC, 0, [b"v"])
    start_application(cluster, "words", TOPIC)
    held = GroupMember(
        cluster.settings,
        "held",
        [TOPIC],
        MemberSettings(),
        revoked=lambda partitions: None,
        lost=lambda partitions: None,
    )
    with held:
        while not held.assigned:
            held.poll(int(time.monotonic() * 1000), 0.1)
        _try_all(odradek_command, run, monkeypatch)


def _try_all(odradek_command, run, monkeypatch):
    monkeypatch.setenv("ODRADEK_PASSWORD", "secret")
    for (command, action), variants in RUN.items():
        keys = set()
        for variant in variants:
            monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
            started = run if command == "config" else odradek_command
            ended = started(*filter(None, [command, action]), *variant, "--output", "json")
            assert (ended.status, ended.err) == (0, ""), (command, action)
            assert ended.rows, (command, action)
            keys.update(*ended.rows)
        assert keys == named(command, action), (command, action)
