"""Disks that fail: which directories and partitions are offline, and how they come back.

Any error of a disk that a sound one would not give has its directory looked at. One that does not take, keep
and give back a few bytes is offline with its partitions, and looked at again and again from then on; a
partition whose flush has failed comes back by a rescan (`rescan.py`).
"""

from functools import partial
from typing import cast

from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.opening import Opening
from odradek.storage.directories.places import Place, Places
from odradek.storage.disk import Disk
from odradek.storage.log.segment_file import FilePool
from odradek.storage.recovery.recovery import Recovered
from odradek.wire.work import Work

RESCAN_PAUSE_MS = 5_000
"""After a rescan that the disk did not let happen."""


class FailingDisks:
    """See the module."""

    def __init__(self, places: Places, opening: Opening) -> None:
        self._places = places
        self._opening = opening
        self.are_given_up = False
        """Whether a data directory that has failed stays offline until the next start, as in Kafka: the
        controllers of a cluster have been told."""
        self._rescan_after_ms = 0

    @property
    def failures(self) -> dict[str, str]:
        """Why data directories are offline, by their paths."""
        homes = self._places.homes.values()
        return {home.path: home.failure for home in homes if home.failure is not None}

    @property
    def needs_attention(self) -> bool:
        """Whether `attending` has something to do."""
        places = self._places
        return (
            places.has_broken or bool(places.suspected) or any(map(self._may_return, places.homes.values()))
        )

    def attending(self, now_ms: int) -> Work[None]:
        """Probe the disks that gave errors, take directories offline whose disk does not answer, bring back
        what can be brought back. Soon after `StoreListener.trouble`, and every second while there is a need.
        """
        places = self._places
        places.now_ms = now_ms
        suspected: dict[str, str] = {}
        while places.suspected:
            path, said = places.suspected.popleft()
            suspected.setdefault(path, said)
        for home in places.homes.values():
            if (home.path in suspected and home.failure is None) or self._may_return(home):
                yield from self._probing(home, suspected.get(home.path, ""))
        if places.has_broken and now_ms >= self._rescan_after_ms:
            places.has_broken = False
            for key, place in list(places.by_key.items()):
                if place.home.failure is None and place.offline_because is not None:
                    yield from self._bringing_back(key, place)

    def _may_return(self, home: DataDirectory) -> bool:
        return home.failure is not None and home.was_opened and not self.are_given_up

    def _probing(self, home: DataDirectory, said: str) -> Work[None]:
        try:
            yield home.probe
        except OSError as error:
            if home.failure is None:
                self.fail(home, said or str(error))
        else:
            if home.failure is not None:
                home.failure = None
                self._places.has_broken = True
                self._places.listener.directory(home.path, None)

    def fail(self, home: DataDirectory, reason: str) -> None:
        """Take a directory offline, and its partitions with it."""
        home.failure = reason
        for place in self._places.by_key.values():
            if place.home is home and place.partition is not None:
                place.partition.availability.take_offline(
                    f"{home.path} has failed: {reason}", is_reported=True
                )
        self._places.listener.directory(home.path, reason)

    def _bringing_back(self, key: Key, place: Place) -> Work[None]:
        from odradek.storage.recovery.rescan import (  # not needed while all is well
            DiskWhileHeld,
            rescan,
            take_over,
        )

        places = self._places
        partition = place.partition

        def is_held() -> bool:
            return places.by_key.get(key) is place

        pool = FilePool(cast(Disk, DiskWhileHeld(places.disk, places.gate, is_held)), 1)
        if partition is None:
            look = partial(self._opening.open_log, pool, key, place, clean=False)
        else:
            # For whoever waits for it, and since a flush in its thread has only said so.
            partition.availability.take_offline("its disk has failed", is_reported=True)
            if (
                partition.availability.is_paused
                or partition.flushing.is_running
                or partition.flushing.is_being_journaled
            ):
                # Somebody else is changing the files. The other two would count records as flushed that the
                # rescan may have cut off meanwhile. And what such a block has would stand in the way of what
                # follows it in the flush journal.
                places.has_broken = True
                return
            look = partial(
                rescan,
                partition.log,
                pool,
                partition.config,
                topic_id=partition.topic_id,
                log_start_offset=partition.log_start_offset,
                now_ms=places.now_ms,
                may_skip=partition.is_replicated,
                producer_expiration_ms=places.producer_expiration_ms,
                scan_checkpoint=place.home.scan_checkpoints.get(key),
            )
        try:
            recovered: Recovered = yield look
            if is_held() and self._opening.settle_end_checkpoint(key, place.home, recovered.log):
                yield place.home.write
        except OSError as error:
            if not is_held():
                return
            places.has_broken = True
            self._rescan_after_ms = places.now_ms + RESCAN_PAUSE_MS
            places.listener.still_offline(place.name, str(error))
            places.suspect(place.home.path, error)
            return
        if not is_held() or place.home.failure is not None:
            recovered.log.files.close()
            places.has_broken = True
            return
        take_over(recovered.log, places.pool)
        if partition is None:
            self._opening.take_in(key, place, recovered)
        else:
            place.home.scan_checkpoints.pop(key, None)
            # Records at its end may be gone, so no flush of it is an answer to whoever has committed before.
            partition.availability.come_back()
            partition.replace_log(recovered.log, recovered.log_start_offset)
        places.listener.recovered(place.name, recovered.cut_bytes)
