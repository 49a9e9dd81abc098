"""How a Python child process is started."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

_OTHERS = ("CLUSTER_ID", "ODRADEK_ADDRESS_FILE")
_PREFIXES = ("KAFKA_", "ODRADEK_DEFAULT_")


def let_find_package(environment: MutableMapping[str, str]) -> None:
    """Lets a child with this environment import the same `odradek` as this process, installed or not."""
    package = Path(sys.modules["odradek"].__path__[0])
    if package.name == "odradek":
        paths = [str(package.parent), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def child_environment() -> dict[str, str]:
    """The environment of a child that finds this package, without variables that would configure a broker."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(_PREFIXES)}
    for name in _OTHERS:
        environment.pop(name, None)
    let_find_package(environment)
    return environment
