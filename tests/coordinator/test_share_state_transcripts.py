"""Every command, refusal and timer of the machine of share partitions, as transcripts for people to read."""

import os
import pathlib
import re

import pytest

from odradek.coordinator.share_state import machine
from tests.coordinator.share_state_transcript import rewrite

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "share_state_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_machine_does_what_the_transcript_says(path):
    played = rewrite(path)
    if os.environ.get("ODRADEK_WRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == path.read_text()


def test_every_error_has_a_transcript():
    shown = set()
    for path in TRANSCRIPTS:
        shown.update(re.findall(r"\b[A-Z_]+\b", path.read_text()))
    source = pathlib.Path(machine.__file__).read_text()
    assert set(re.findall(r"ErrorCode\.([A-Z_]+)", source)) <= shown
