"""How a Python of ours is started beside this one."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path


def let_find_package(environment: MutableMapping[str, str]) -> None:
    """Sees to it that a child with this environment imports the same `odradek` as we do, installed or not."""
    import odradek

    package = Path(odradek.__path__[0])
    if package.name == "odradek":
        paths = [str(package.parent), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
