"""The Java admin clients of 4.1 to 4.4 with a share group that is empty, at work, and deleted."""

from __future__ import annotations

import subprocess

import pytest

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.share_groups.brokers import new_topic, set_up_group
from compat_tests.share_groups.members import HERE, JAVA
from tests.tiers import rest_at_night

EXPECTED = {
    "describe a group that is not there": "GroupIdNotFoundException",
    "alter": "null",
    "offsets": "{0=3, 1=5}",
    "describe an empty group": "Empty 0 0",
    "list share groups": "[Share Empty false]",
    "list by type": "[Share Empty false]",
    "list by another type": "[]",
    "read": "12",
    "describe a group at work": "Stable 1 2",
    "alter a group at work": "GroupNotEmptyException",
    "delete offsets of a group at work": "GroupNotEmptyException",
    "delete a group at work": "GroupNotEmptyException",
    "alter again": "null",
    "delete offsets": "null",
    "no offsets": "{}",
    "delete": "null",
    "describe a deleted group": "GroupIdNotFoundException",
    "delete again": "GroupIdNotFoundException",
}
"""Step of `ShareAdmin.java` -> its outcome."""
UNTOLD = {"4.1.2": {"alter a group at work": "null"}}
"""A refusal of which the client of that version does not tell."""


@pytest.mark.parametrize("version", rest_at_night(*JAVA))
def test_a_group_by_the_admin_client(bootstrap: str, version: str) -> None:
    class_path = compile_java(reference.client_class_path(version), HERE / "ShareAdmin.java")
    command = ["java", *reference.SMALL_JVM, "-cp", class_path, "ShareAdmin"]
    arguments = [bootstrap, set_up_group(bootstrap), new_topic(bootstrap, 20, partitions=2)]
    finished = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=100)
    assert finished.returncode == 0, finished.stdout + finished.stderr[-3000:]
    told = dict(line.split("\t") for line in finished.stdout.splitlines())
    assert told == EXPECTED | UNTOLD.get(version, {})
