"""Complaints about commit messages."""

import os
import shutil
import subprocess

import pytest

from tools import commit_message
from tools.commit_message import complaints, complaints_of_head

BODY = "\n\nIt was slow.\n"


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        ("server: a port is free", 50),
        ("server, tests/kit: a port is free" + BODY, 51),
        ("cluster guide: what a kill costs\n# server: no\n", 9),
        ("Merge branch 'rooms'", 900),
        ("fixup! server: a port is free", 900),
        (f"wire: {'x' * 66}", 1),
        (f"wire: a\n\n{commit_message.SCISSORS}\ndiff --git a b", 1),
    ],
)
def test_a_right_message_passes(message, lines):
    assert complaints(message, lines) == []


@pytest.mark.parametrize(
    ("message", "lines", "said"),
    [
        ("", 1, "write `part: what it does`"),
        ("A port is free", 1, "write `part: what it does`"),
        ("Server: a port is free", 1, "write `part: what it does`"),
        ("server: ", 1, "write `part: what it does`"),
        (f"wire: {'x' * 67}", 1, "has 73 characters"),
        ("server: a port is free\nat once", 1, "leave a line empty"),
        ("server: a port is free", 51, "has 51 lines: write a body"),
        ("server: a port is free\n\nCo-Authored-By: A <a@b.c>", 51, "write a body"),
        (f"wire: a\n\n{commit_message.SCISSORS}\ndiff --git a b", 51, "write a body"),
    ],
)
def test_another_message_is_refused(message, lines, said):
    (sentence,) = complaints(message, lines)
    assert said in sentence


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Runs git in a new repository."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    # A hook that runs the tests has the variables of its own repository.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    names |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    hooks = commit_message.CHECKOUT / "tools" / "hooks"

    def run(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", f"core.hooksPath={hooks}", *arguments]
        return subprocess.run(command, env=os.environ | names, capture_output=True, text=True)

    run("init")
    return run


def test_git_asks_and_the_head_is_judged(git, tmp_path):
    assert complaints_of_head(tmp_path) == []
    (tmp_path / "a").write_text("")
    git("add", "a")
    assert git("commit", "-m", "wire: a file").returncode == 0
    (tmp_path / "a").write_text("a\n" * 51)
    refused = git("commit", "-am", "wire: more of it")
    assert refused.returncode == 1
    assert "the change has 51 lines: write a body that says why (CONTRIBUTING.md)" in refused.stderr
    assert git("commit", "-am", f"wire: more of it{BODY}").returncode == 0
    assert complaints_of_head(tmp_path) == []
    git("commit", "--amend", "--no-verify", "-m", "wire: more of it")
    assert complaints_of_head(tmp_path) == ["the change has 51 lines: write a body that says why"]


def test_a_tarball_is_passed_over(git, tmp_path):
    (tmp_path / "inner").mkdir()
    git("commit", "--allow-empty", "--no-verify", "-m", "Whatever")
    assert len(complaints_of_head(tmp_path)) == 1
    assert complaints_of_head(tmp_path / "inner") == []
