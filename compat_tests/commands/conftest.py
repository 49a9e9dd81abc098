"""The command line in this process, at the broker under test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from odradek.commands.main import main

Rows = list[dict[str, Any]]


@pytest.fixture
def rows(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Rows]:
    """Runs a command with `--output json`; returns what it prints."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")

    def ended(*arguments: str, bootstrap: str = bootstrap, status: int = 0) -> Rows:
        capsys.readouterr()
        got = main([*arguments, "-b", bootstrap, "--output", "json"])
        out, err = capsys.readouterr()
        assert got == status, err
        found: Rows = json.loads(out)
        return found

    return ended
