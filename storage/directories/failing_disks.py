"""Disks that fail: directories and partitions go offline and come back.

After a disk error that a sound disk does not give, the directory is probed. If its disk cannot write, sync
and read a few bytes, the directory goes offline with its partitions, and is probed again until it works. A
partition whose flush has failed comes back by a rescan (`rescan.py`).

In a cluster a directory that has failed stays offline until the next start, as in Kafka: the controllers have
been told (`are_given_up`). So that another replica may lead, it is also given up when the disk refuses
something of a partition that this node leads, as a full one does, and another replica has all that is
committed. And when a rescan finds that records are gone: this node may have promised them, and a follower of
its may have them, with the same epoch as those that would come in their place. (Kafka gives a directory up
after any error.) Else the node goes on with what there is: a follower on a full disk leaves the ISR, and
waits for room.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.opening import Opening
from odradek.storage.directories.places import Place, Places
from odradek.storage.disk import Disk
from odradek.storage.log.segment_file import FilePool
from odradek.storage.recovery.recovery import Recovered
from odradek.wire.work import Work

RESCAN_PAUSE_MS = 5_000
"""The pause after a failed rescan."""


class Role(NamedTuple):
    """The role of this node's replica of a partition that has others."""

    leads: bool
    has_substitute: bool
    """Whether the replica is in the ISR or ELR, and not alone."""


class FailingDisks:
    """See the module."""

    def __init__(self, places: Places, opening: Opening) -> None:
        self._places = places
        self._opening = opening
        self.are_given_up = False
        """Whether a failed data directory stays offline until the next start, as in Kafka: in a cluster the
        controllers have a report of the failure."""
        self.role_of: Callable[[Key], Role] = lambda key: Role(leads=False, has_substitute=False)
        self._rescan_after_ms = 0

    @property
    def failures(self) -> dict[str, str]:
        """The failure of each offline data directory, by path."""
        homes = self._places.homes.values()
        return {home.path: home.failure for home in homes if home.failure is not None}

    @property
    def needs_attention(self) -> bool:
        """Whether `attending` has something to do."""
        places = self._places
        return (
            places.has_broken
            or bool(places.suspected)
            or bool(places.refused)
            or any(map(self._may_return, places.homes.values()))
        )

    def attending(self, now_ms: int) -> Work[None]:
        """Probe the disks that gave errors, take directories with failed disks offline, bring partitions
        back. To be called soon after `StoreListener.trouble`, and every second while `needs_attention`.
        """
        places = self._places
        places.now_ms = now_ms
        suspected: dict[str, str] = {}
        while places.suspected:
            path, disk_error = places.suspected.popleft()
            suspected.setdefault(path, disk_error)
        for home in places.homes.values():
            if (home.path in suspected and home.failure is None) or self._may_return(home):
                yield from self._probing(home, suspected.get(home.path, ""))
        self._give_up_refusing()
        if places.has_broken and now_ms >= self._rescan_after_ms:
            places.has_broken = False
            for key, place in list(places.by_key.items()):
                if place.home.failure is None and place.offline_because is not None:
                    yield from self._bringing_back(key, place)

    def _give_up_refusing(self) -> None:
        refused = self._places.refused
        while refused:
            key, said = refused.popleft()
            place = self._places.by_key.get(key)
            if place is None or place.home.failure is not None or not self.are_given_up:
                continue
            if self.role_of(key) == Role(leads=True, has_substitute=True):
                self.fail(place.home, said)

    def may_return(self, key: Key) -> bool:
        """Whether a partition that is offline may be back before the next start."""
        place = self._places.by_key.get(key)
        return place is not None and (place.home.failure is None or self._may_return(place.home))

    def _may_return(self, home: DataDirectory) -> bool:
        return home.failure is not None and home.was_opened and not self.are_given_up

    def _probing(self, home: DataDirectory, disk_error: str) -> Work[None]:
        try:
            yield home.probe
        except OSError as error:
            if home.failure is None:
                self.fail(home, disk_error or str(error))
        else:
            if home.failure is not None:
                home.failure = None
                self._places.has_broken = True
                self._places.listener.directory(home.path, None)

    def fail(self, home: DataDirectory, reason: str) -> None:
        """Take a directory and its partitions offline."""
        home.failure = reason
        for place in self._places.by_key.values():
            if place.home is home and place.partition is not None:
                place.partition.availability.take_offline(
                    f"{home.path} has failed: {reason}", is_reported=True
                )
        self._places.listener.directory(home.path, reason)

    def _bringing_back(self, key: Key, place: Place) -> Work[None]:
        from odradek.storage.recovery.rescan import (  # not needed without a failure
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
            # Fails the waiting requests: after a failed flush only its thread has noted the failure.
            partition.availability.take_offline("its disk has failed", is_reported=True)
            if (
                partition.availability.is_paused
                or partition.flushing.is_running
                or partition.flushing.is_being_journaled
            ):
                # Another operation is changing the files. A flush or a journal block would count records as
                # flushed that the rescan may have cut off meanwhile. And the entry of such a block would
                # conflict with later entries of the flush journal.
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
        if partition is not None and recovered.cut_bytes and self.are_given_up and any(self.role_of(key)):
            recovered.log.files.close()
            lost = f"the last {recovered.cut_bytes} bytes of {place.name} never reached the disk"
            self.fail(place.home, lost)
            return
        take_over(recovered.log, places.pool)
        if partition is None:
            self._opening.take_in(key, place, recovered)
        else:
            place.home.scan_checkpoints.pop(key, None)
            # Records at its end may be gone, so no later flush confirms earlier commits.
            partition.availability.come_back()
            partition.replace_log(recovered.log, recovered.log_start_offset)
        places.listener.recovered(place.name, recovered.cut_bytes)
