"""The page of the documents, and the help of each command."""

import pathlib

import pytest

from odradek.commands.command import COMMANDS, parser_of
from odradek.commands.page import page

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_is_made_of_the_parsers():
    assert (ROOT / "docs" / "commands.md").read_text() == page(), "python -m odradek.commands.page"


# `spark` has parsers of its own.
WITH_A_PARSER = [one for one in COMMANDS.values() if one.help and not one.reads_arguments]


@pytest.mark.parametrize("command", WITH_A_PARSER, ids=lambda command: command.name)
def test_each_command_ends_its_help_with_examples(command):
    module = command.load()
    assert f"odradek {command.name}" in module.EXAMPLES.split("examples:\n")[1]
    help_text = parser_of(command, module).format_help()
    assert f"odradek {command.name}" in help_text
    assert "exit status: 0" in help_text


@pytest.mark.parametrize("command", WITH_A_PARSER, ids=lambda command: command.name)
def test_help_fits_the_terminal(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    help_text = parser_of(command, command.load()).format_help()
    assert max(map(len, help_text.splitlines())) <= 80
