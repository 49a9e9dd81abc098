"""Every transition and refusal of share groups, as transcripts that a person can read."""

import os
import pathlib

import pytest

from tests.coordinator.share_transcript import ShareStage
from tests.coordinator.transcript import rewrite

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "share_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_machine_does_what_the_transcript_says(path):
    played = rewrite(path, ShareStage())
    if os.environ.get("ODRADEK_WRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == path.read_text()
