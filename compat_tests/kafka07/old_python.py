"""A Python 2.7, for clients that know no other one, and those clients as their authors left them."""

from __future__ import annotations

import os
import pathlib
import shutil

from compat_tests.outside import clean_environment
from tools import environment

VERSIONS = {
    "samsa": "0.3.11",
    "brod": "0.4.3",
    # Later ones are of other authors and of later releases of Kafka.
    "pykafka": "0.1.3",
    # What samsa needs for ZooKeeper: the last ones for Python 2.7.
    "kazoo": "2.8.0",
    "six": "1.16.0",
}


def _python2() -> str | None:
    """On the path or of pyenv."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    made = sorted(root.glob("versions/2.7*/bin/python2.7"))
    return str(made[-1]) if made else shutil.which("python2.7")


PYTHON = _python2()
"""None: there is none here."""


def variables(*projects: str) -> dict[str, str]:
    """The environment of a process that imports them."""
    sources = [str(environment.source(one, VERSIONS[one])) for one in projects]
    return clean_environment(PYTHONPATH=os.pathsep.join(sources), PYTHONDONTWRITEBYTECODE="1")
