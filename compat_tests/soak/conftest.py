"""How long the soak runs, and with which seed."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=float, default=60.0, help="how long the soak produces and kills")
    parser.addoption("--soak-seed", type=int, default=None, help="repeat the moments of an earlier run")
