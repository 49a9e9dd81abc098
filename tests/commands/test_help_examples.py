"""What the help of a command shows as examples is understood by its parser."""

import re
import shlex

import pytest

from odradek.commands.command import COMMANDS, joined, parser_of
from odradek.commands.page import page

ADMINISTRATION = (
    "topics",
    "doctor",
    "configs",
    "acls",
    "users",
    "quotas",
    "cluster",
    "config",
    "completion",
    "groups",
    "transactions",
    "producers",
    "produce",
    "consume",
    "bench",
    "trace",
    "monitoring",
)


def examples(name):
    """The words behind the name of the command, of each example; without what the shell does."""
    for line in COMMANDS[name].load().EXAMPLES.splitlines():
        for found in re.findall(rf"(?:^  |<\(|\| )odradek {name} (.*?)(?:  +.*|\)|)$", line):
            yield shlex.split(re.split(r" [<>|] ", found)[0])


@pytest.mark.parametrize("name", ADMINISTRATION)
def test_examples_are_understood(name):
    command = COMMANDS[name]
    parser = parser_of(command, command.load())
    shown = [words for words in examples(name) if words != ["..."]]
    assert len(shown) >= 3
    for words in shown:
        parser.parse_args(joined(words))


@pytest.mark.parametrize("name", ADMINISTRATION)
def test_each_action_is_shown(name):
    actions = re.findall(rf"^### odradek {name} (.+)$", page(), re.MULTILINE)
    assert {words[0] for words in examples(name)} >= set(actions)


KEEPS = {
    *("topics list", "topics describe", "topics offsets"),
    *("groups list", "groups describe"),
    *("transactions list", "transactions describe", "transactions find-hanging"),
    *("configs get", "configs diff", "acls list", "users list", "quotas list"),
    *("cluster info", "cluster health", "cluster log-dirs", "cluster start"),
    *("config path", "config list", "config set", "config set-password", "config use"),
    *("bench produce", "bench consume", "bench roundtrip"),
    # They add, and give a user another password.
    *("acls add", "users add"),
}
"""Actions that take nothing away."""


def test_whatever_takes_something_away_can_be_tried_first():
    sections = re.findall(r"^### odradek (\S+ \S+)\n(.*?)(?=^##|\Z)", page(), re.MULTILINE | re.DOTALL)
    assert {name for name, _ in sections} > KEEPS
    for name, text in sections:
        assert ("--dry-run" in text) is (name not in KEEPS), name
