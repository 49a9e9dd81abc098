"""How a Python child process is started."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path


def let_find_package(environment: MutableMapping[str, str]) -> None:
    """Lets a child with this environment import the same `odradek` as this process, installed or not."""
    import odradek

    package = Path(odradek.__path__[0])
    if package.name == "odradek":
        paths = [str(package.parent), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
