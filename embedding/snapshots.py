"""Snapshots of a broker in a program: `broker.snapshot()`, `broker.restore(snap)`, `broker.fork()`.

    with odradek.Broker() as broker:
        fill(broker)
        snap = broker.snapshot()
        ...
        broker.restore(snap)            # as often as you like: same port, same data
        other = broker.fork()           # a second broker with the data of now
        snap.save("filled.tar.gz")      # odradek.Broker(snapshot="filled.tar.gz")

A snapshot is a directory beside the data directory. It shares the closed segments with it, and goes away with
`close`, with the broker, or when nothing refers to it any more.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from odradek.config.os_reason import reason_of
from odradek.server.metadata.directory_archive import CannotBackUp, CannotUnpack, back_up
from odradek.server.metadata.meta_properties import is_member
from odradek.server.test_kit import snapshot_files as files
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.snapshots import laid_out


class Broker(Protocol):
    """A broker as snapshots see it; `odradek.Broker` is one."""

    data_dir: Path

    @property
    def is_running(self) -> bool: ...

    def call_kit(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """See `odradek.Broker.call_kit`."""


class Snapshot:
    """The data of a broker at one moment. Also a context manager, which closes it."""

    def __init__(self, directory: str) -> None:
        """An empty one, beside a data directory."""
        self.path = files.folder_beside(directory, "snapshot")
        """Its directory, for `odradek check` and `odradek dump`; not for a broker."""
        self._finalizer = weakref.finalize(self, files.remove, self.path)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes an archive, to be kept beside a test: a new file for `Broker(snapshot=file)` and
        `broker.restore(file)`. TestKitError: it cannot be written."""
        try:
            back_up(self.path, os.fspath(file), is_packed=True)
        except CannotBackUp as error:
            raise TestKitError(str(error)) from None
        except OSError as error:
            raise _refusal(error) from None

    def close(self) -> None:
        """Removes its directory; harmless a second time."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<odradek snapshot in {self.path}{'' if self._finalizer.alive else ', closed'}>"


Source = Snapshot | str | os.PathLike[str]
"""A snapshot; or a path: of an archive, or of a data directory that nobody serves."""


def take(broker: Broker, *, prepares: bool) -> Snapshot:
    """The data as they are now, or as the last stop has left them. `prepares`: the broker is to expect a
    restore. TestKitError: this broker has none."""
    directory = str(broker.data_dir)
    if is_member(directory):
        raise TestKitError("snapshots are for a broker alone, and this one is a node of a cluster")
    try:
        snapshot = Snapshot(directory)
        if broker.is_running:
            broker.call_kit("snapshots.add", {"path": snapshot.path, "prepares": prepares})
        else:
            files.lay_out_stopped(directory, snapshot.path)
    except BlockingIOError:
        raise TestKitError(f"another broker serves {directory}") from None
    except OSError as error:
        raise _refusal(error) from None
    return snapshot


def restore(broker: Broker, source: Source) -> None:
    """Puts the data of `source` in the place of the broker's, whether it runs or not. TestKitError: nothing
    has been done."""
    path = path_of(source)
    if broker.is_running:
        broker.call_kit("snapshots.restore", {"path": path, "is_snapshot": isinstance(source, Snapshot)})
        return
    directory = str(broker.data_dir)
    try:
        folder = laid_out(path, directory, is_snapshot=isinstance(source, Snapshot))
        files.exchange(directory, folder)
    except CannotUnpack as error:
        raise TestKitError(str(error)) from None
    except OSError as error:
        raise _refusal(error) from None
    files.remove(folder)


def fill(directory: str, source: Source) -> None:
    """Makes the data of `source` those of a data directory, which is new or empty. TestKitError: it is not,
    or there are no such data."""
    if os.path.isdir(directory) and os.listdir(directory):
        raise TestKitError(f"{directory} has data: name a new directory, or restore the snapshot there")
    os.makedirs(directory, exist_ok=True)
    try:
        folder = laid_out(path_of(source), directory, is_snapshot=isinstance(source, Snapshot))
        os.rename(folder, directory)
    except CannotUnpack as error:
        raise TestKitError(str(error)) from None
    except OSError as error:
        raise _refusal(error) from None


def remove_leftovers(directory: str) -> None:
    """Removes what restores have left beside a data directory whose broker was killed."""
    for folder in files.folders_beside(directory, "restored"):
        files.remove(folder)


def path_of(source: Source) -> str:
    """Its path, absolute: a child process may have another working directory."""
    return source.path if isinstance(source, Snapshot) else os.path.abspath(source)


def _refusal(error: OSError) -> TestKitError:
    return TestKitError(f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error))
