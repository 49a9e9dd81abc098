"""Code in the pages of docs/, for the tests that run it."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Code of this language in a page of docs/, block by block."""
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def block_with(page: str, language: str, text: str) -> str:
    """The one block of this language that has the text."""
    (found,) = (block for block in blocks(page, language) if text in block)
    return found
