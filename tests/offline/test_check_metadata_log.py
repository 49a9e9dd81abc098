"""`odradek check` of the directory of a controller."""

from __future__ import annotations

import io

import pytest

from odradek.offline.check import check
from odradek.server.metadata.member_directories import claim_member_directories
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.storage.disk import OsDisk
from odradek.wire.schema import uuid_from_text
from tests.server.metadata_logs import LEVEL, level, setting, settings_of

NODE = 100


@pytest.fixture
def data(tmp_path):
    """The directory, after a kill."""
    identity = claim_member_directories([str(tmp_path)], node_id=NODE).settle("cluster-of-a-test")
    log = opened(tmp_path, identity.directory_ids[str(tmp_path)])
    log.append([level(), setting("a", "1")], LEVEL)
    log.append([setting("b", "2")], LEVEL)
    return tmp_path


def opened(data, directory_id=""):
    voter = ThisVoter(NODE, uuid_from_text(directory_id) if directory_id else bytes(16))
    return DiskMetadataLog(OsDisk(), str(data / DIRECTORY), voter, now_ms=lambda: 1000)


def told(data, status=0, **options):
    """All lines but the summary."""
    out = io.StringIO()
    assert check([str(data)], out=out, **options) == status, out.getvalue()
    *lines, summary = out.getvalue().splitlines()
    assert summary.startswith("summary ")
    return [line.replace(f"{data}/{DIRECTORY}", "LOG") for line in lines]


def segment(data):
    (found,) = (data / DIRECTORY).glob("*.log")
    return found


def test_a_sound_log_is_nothing_to_tell_of_and_is_not_changed(data):
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert told(data) == []
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_wrong_bit_is_mended(data):
    content = bytearray(segment(data).read_bytes())
    content[100] ^= 4
    segment(data).write_bytes(content)
    wrong = "a bit at byte 100 is wrong. A start mends it."
    assert told(data, 1) == [f"damage LOG/{segment(data).name}: {wrong}"]
    assert "mended" in " ".join(told(data, repair=True))
    assert told(data) == []
    assert settings_of(opened(data)) == {"a": "1", "b": "2"}


def test_a_change_that_was_never_finished_is_a_note_and_is_cut(data):
    with segment(data).open("ab") as file:
        file.write(segment(data).read_bytes()[:70])
    (note,) = told(data)
    assert note.startswith("note ")
    assert "never finished" in note
    told(data, repair=True)
    assert told(data) == []


def test_what_is_lost_is_given_up_by_a_repair_alone(data):
    content = bytearray(segment(data).read_bytes())
    at = content.index(b"\x02a")
    content[at - 8 : at] = b"\xff" * 8
    segment(data).write_bytes(content)
    (damage,) = told(data, 1)
    assert "It cannot be mended" in damage
    assert any("could be read" in line for line in told(data, repair=True))
    assert told(data) == []
    assert (data / f"{DIRECTORY}.0.damaged").is_dir()
    assert settings_of(opened(data))["b"] == "2"
