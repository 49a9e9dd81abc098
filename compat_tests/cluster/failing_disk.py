"""The disk of a node in the test's process, which fails on command: below a path, in some operations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from odradek.storage.disk import Buffer, OsDisk, OsFile


class Failure:
    """Of `operations` ("open", "write", "sync") on files under `path` with `part` in their paths."""

    def __init__(self, path: str, code: int, *operations: str, part: str = "", count: int = 10**9) -> None:
        self.path = path
        self.part = part
        self.code = code
        self.operations = operations
        self.left = count

    def meet(self, operation: str, path: str) -> None:
        if (
            operation in self.operations
            and path.startswith(self.path)
            and self.part in path
            and self.left > 0
        ):
            self.left -= 1
            raise OSError(self.code, os.strerror(self.code), path)


class FailingDisk(OsDisk):
    """`failures` are those of now."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def meet(self, operation: str, path: str) -> None:
        for failure in list(self.failures):
            failure.meet(operation, path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self.meet("open", path)
        return FailingFile(super().open(path, create=create), self, path)


class FailingFile:
    """What is not here the real file does."""

    def __init__(self, file: OsFile, disk: FailingDisk, path: str) -> None:
        self._file = file
        self._disk = disk
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        self._disk.meet("write", self._path)
        return self._file.write(position, parts)

    def sync(self) -> None:
        self._disk.meet("sync", self._path)
        self._file.sync()
