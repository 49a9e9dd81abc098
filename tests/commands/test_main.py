"""What all commands have in common: the exit status of an interrupt."""

import pytest

from odradek.commands.command import COMMANDS


@pytest.mark.parametrize("name", ["topics", "consume", "check", "dump", "import-log"])
def test_an_interrupt_is_status_130_without_a_word(name, run, monkeypatch, tmp_path):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS[name].load(), "run", interrupted)
    ended = run(name, *(["list"] if name == "topics" else ["something"]))
    assert (ended.status, ended.out, ended.err) == (130, "", "")
