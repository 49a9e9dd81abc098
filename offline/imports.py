"""The note of an import that is under way, so that the next one removes what a kill has left.

The file `odradek-import.json` of a data directory has the topic, its id, and the directories that are made
for it.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from odradek.storage.disk import Disk, read_file, replace_file

FILE_NAME = "odradek-import.json"


class ImportNote(NamedTuple):
    topic: str
    topic_id: bytes
    names: list[str]
    """Names of directories."""


def read_note(disk: Disk, directory: str) -> ImportNote | None:
    """None: no import is under way. Raises OSError."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    fields = json.loads(read_file(disk, path))
    return ImportNote(fields["topic"], bytes.fromhex(fields["id"]), fields["names"])


def write_note(disk: Disk, directory: str, note: ImportNote) -> None:
    """Durable on return. Raises OSError."""
    text = json.dumps({"topic": note.topic, "id": note.topic_id.hex(), "names": note.names})
    replace_file(disk, f"{directory}/{FILE_NAME}", text.encode())


def remove_note(disk: Disk, directory: str) -> None:
    """Raises OSError."""
    disk.remove(f"{directory}/{FILE_NAME}")
    disk.sync_directory(directory)
