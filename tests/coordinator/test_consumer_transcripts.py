"""Every transition and refusal of consumer groups (KIP-848), as transcripts that a person can read."""

import os
import pathlib

import pytest

from tests.coordinator.transcript import rewrite

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "consumer_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_consumer_groups_do_what_the_transcript_says(path):
    played = rewrite(path)
    if os.environ.get("ODRADEK_WRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == path.read_text()
