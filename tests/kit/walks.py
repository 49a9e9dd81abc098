"""The walks of `docs/architecture.md`: the functions that a page for newcomers names."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent.parent
STEP = re.compile(r"^\| `([\w./]+\.(?:py|pyx|pxi))` \| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)


def architecture():
    return (ROOT / "docs" / "architecture.md").read_text()


def steps(text):
    """File and function of each row of a table, in the order of the page."""
    return [(path, name) for path, names in STEP.findall(text) for name in re.findall(r"\w+", names)]


def common_path(walk):
    """The steps of the first table of a walk."""
    walks = re.split("^## ", architecture(), flags=re.MULTILINE)
    (text,) = (one for one in walks if one.startswith(walk + "\n"))
    (table, *_) = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return steps(table)
