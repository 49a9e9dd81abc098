"""Snapshots: the data of the broker at one moment, to which it can return.

    POST /admin/snapshots            {}             -> {"id": "1", "path": "/tmp/.data.snapshot-x"}
    POST /admin/snapshots/restore    {"id": "1"}
    POST /admin/snapshots/save       {"id": "1", "file": "/tests/filled.tar.gz"}
    DELETE /admin/snapshots/1

A snapshot is a directory beside the data directory (`snapshot_files.py`). It is that of one moment at the end
of a turn of the event loop, between two works of the store: nothing is staged, no segment is being exchanged,
and partitions, coordinators and metadata belong together. Requests that have no response yet may have had
their effect or not.

A restore lays out a new data directory while the broker serves; then it cuts the connections, exchanges the
directories by one rename, and starts all but the process and its ports. A start that fails is undone by the
same rename. The next directory, of the newest snapshot, or of that of the last restore, is laid out in
advance. The other parts of the test kit begin anew: faults are gone, and the clock is that of the system.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.server.metadata.directory_archive import CannotBackUp, CannotUnpack, back_up, unpack
from odradek.server.test_kit import snapshot_files as files
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit
    from odradek.server.test_kit.tested import Tested

T = TypeVar("T")


def make(kit: TestKit) -> Snapshots:
    """The part `snapshots`."""
    return Snapshots(kit)


class Snapshots:
    """See the module. Refuses nodes of a cluster, workers, and brokers with several directories."""

    operations: tuple[str, ...] = ("add", "all", "is_served", "remove", "restore", "save")

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._server: Tested = kit.server
        self._paths: dict[str, str] = {}
        self._count = 0
        # One thread for all files: `close` waits for it, and nothing is left behind.
        self._worker = ThreadPoolExecutor(1, "odradek-snapshots")
        # What the next restore will take, and for which source.
        self._prepared: tuple[str, Future[str]] | None = None
        # The newest snapshot, with the ends of its logs, and the version of the view since when nothing but
        # the logs may have changed; None: other data are served.
        self._newest: tuple[str, Ends] | None = None
        self._served_since: int | None = None

    async def add(self, path: str | None = None, prepares: bool = True) -> dict[str, str]:
        """A snapshot of this moment, in an empty folder of the caller's, or in one that goes with the broker.
        `prepares`: a restore is to be expected."""
        directory = self._directory()
        try:
            folder = path or files.folder_beside(directory, "snapshot")
        except OSError as error:
            raise _refusal(error) from None
        try:
            begun, ends, version = await self._between_works(folder)
            self._newest, self._served_since = (folder, ends), version
            await self._elsewhere(begun.finish)
        except (OSError, KafkaError) as error:
            files.remove(folder)
            raise _refusal(error) from None
        self._count += 1
        id_ = str(self._count)
        if path is None:
            self._paths[id_] = folder
        if prepares:
            self._prepare(folder, partial(laid_out, folder, directory, is_snapshot=True))
        return {"id": id_, "path": folder}

    async def is_served(self, path: str) -> bool:
        """Whether the data are still those of the newest snapshot, in this folder, as far as the broker can
        tell without a look at its files: nothing was written, and no topic and no setting was changed."""
        if self._newest is None or self._newest[0] != path:
            return False
        if self._served_since != self._server.cluster_view.version:
            return False
        ends = self._newest[1]
        now = _ends(self._server)
        # A log that was not opened since the start of the broker has not changed.
        return now.keys() == ends.keys() and all(one in (None, ends[key]) for key, one in now.items())

    async def all(self) -> list[dict[str, str]]:
        """All that have no folder of a caller's."""
        return [{"id": id_, "path": path} for id_, path in self._paths.items()]

    async def remove(self, id: str) -> None:
        """Removes its folder."""
        self._path_of(id)
        await self._elsewhere(partial(files.remove, self._paths.pop(id)))

    async def save(self, file: str, id: str) -> None:
        """Writes an archive, a new file that `restore` takes."""
        try:
            await self._elsewhere(partial(back_up, self._path_of(id), file, is_packed=True))
        except (CannotBackUp, OSError) as error:
            raise _refusal(error) from None

    async def restore(
        self, id: str | None = None, path: str | None = None, is_snapshot: bool = False
    ) -> None:
        """Returns to a snapshot, or to what a path has: a data directory that nobody serves, or an archive.
        `is_snapshot`: it is the folder of a snapshot, in which nobody changes anything."""
        directory = self._directory()
        if (id is None) == (path is None):
            raise TestKitError("snapshots.restore takes an id or a path")
        source = self._path_of(id) if id is not None else str(path)
        is_snapshot = is_snapshot or id is not None
        lay_out = partial(laid_out, source, directory, is_snapshot=is_snapshot)
        try:
            folder = await self._laid_out(source, lay_out)
            self._served_since = None
            try:
                await self._server.serve_other_data(partial(self._exchange, directory, folder))
                if self._newest is not None and self._newest[0] == source:
                    self._served_since = self._server.cluster_view.version
                if is_snapshot:
                    self._prepare(source, lay_out)
            finally:
                self._kit.begin_anew(self)
                # The former data, or what was not to be.
                self._remove(folder)
        except (OSError, CannotUnpack, ConfigError) as error:
            raise _refusal(error) from None

    def _exchange(self, directory: str, folder: str) -> None:
        files.exchange(directory, folder)
        self._server.clock.reset()

    def _remove(self, folder: str) -> None:
        try:
            self._worker.submit(files.remove, folder)
        except RuntimeError:
            # The broker has stopped meanwhile.
            files.remove(folder)

    def _prepare(self, source: str, lay_out: Callable[[], str]) -> None:
        former = self._prepared
        self._prepared = source, self._worker.submit(lay_out)
        if former is not None:
            self._worker.submit(_remove_result, former[1])

    async def _laid_out(self, source: str, lay_out: Callable[[], str]) -> str:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            if prepared[0] == source:
                return await asyncio.wrap_future(prepared[1])
            self._worker.submit(_remove_result, prepared[1])
        return await self._elsewhere(lay_out)

    async def _elsewhere(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function)

    def close(self) -> None:
        """The broker stops."""
        if self._prepared is not None:
            self._worker.submit(_remove_result, self._prepared[1])
        for path in self._paths.values():
            self._worker.submit(files.remove, path)
        self._worker.shutdown()

    def _path_of(self, id_: str) -> str:
        if id_ not in self._paths:
            raise TestKitError(f"there is no snapshot {id_!r}; there are {', '.join(self._paths) or 'none'}")
        return self._paths[id_]

    def _directory(self) -> str:
        """The data directory. TestKitError: this broker is not one for snapshots."""
        config = self._server.config
        if config.worker is not None:
            raise TestKitError("snapshots are for a broker of one process, and this one has workers")
        if config.cluster is not None:
            raise TestKitError("snapshots are for a broker alone, and this one is a node of a cluster")
        if config.values["zookeeper.connect"]:
            raise TestKitError("snapshots are for a broker alone, and this one is registered in ZooKeeper")
        if config.data_directories != (config.metadata_directory,):
            raise TestKitError("snapshots are for a broker with one data directory, and this one has several")
        return config.metadata_directory

    async def _between_works(self, folder: str) -> tuple[files.Begun, Ends, int]:
        """Begins when no retention or compaction is under way, at the end of a turn. Also gives the ends of
        the logs, and the version of the view, in that moment."""
        schedule, store = self._server.schedule, self._server.store
        begun: asyncio.Future[tuple[files.Begun, Ends, int]] = schedule.loop.create_future()

        def beginning() -> Generator[None, None, tuple[files.Begun, Ends, int]]:
            schedule.turn.end()
            return files.begin(store, folder), _ends(self._server), self._server.cluster_view.version
            yield

        def unless_done(settle: Any, value: Any) -> None:
            if not begun.done():
                settle(value)

        schedule.upkeep.run(
            beginning(), partial(unless_done, begun.set_result), partial(unless_done, begun.set_exception)
        )
        return await begun


Ends = dict[tuple[str, int], tuple[int, int] | None]
"""First and next offset of each log; None: it was not opened since the start of the broker."""


def _ends(server: Tested) -> Ends:
    places = server.store.places.by_key
    return {
        key: None
        if place.partition is None
        else (place.partition.log_start_offset, place.partition.log_end_offset)
        for key, place in places.items()
    }


def laid_out(source: str, directory: str, *, is_snapshot: bool = False) -> str:
    """A new folder beside a data directory, to take its place. TestKitError: a broker serves `source`. Raises
    CannotUnpack and OSError, too."""
    folder = files.folder_beside(directory, "restored")
    try:
        if is_snapshot:
            files.lay_out(source, folder)
        elif os.path.isdir(source):
            files.lay_out_stopped(source, folder)
        else:
            unpack(source, folder)
        os.chmod(folder, os.stat(directory).st_mode & 0o7777)
    except BlockingIOError:
        files.remove(folder)
        raise TestKitError(f"a broker serves {source}: take a snapshot of it") from None
    except BaseException:
        files.remove(folder)
        raise
    return folder


def _remove_result(laid_out: Future[str]) -> None:
    if laid_out.exception() is None:
        files.remove(laid_out.result())


def _refusal(error: Exception) -> TestKitError:
    if isinstance(error, OSError) and error.filename is not None:
        return TestKitError(f"{os.fspath(error.filename)}: {reason_of(error)}")
    return TestKitError(error.message if isinstance(error, KafkaError) else str(error))
