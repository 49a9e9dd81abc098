"""The metadata log of a controller in memory, with the bytes that its followers read."""

from __future__ import annotations

import os
import time
from bisect import bisect_right

from odradek.apis.controller.parts import EndOfEpoch, SnapshotName
from odradek.coordinator.controller.record_versions import version_of
from odradek.wire.messages.metadata_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    VotersRecord,
    VoterWithEndpoints,
    encode_control_record,
    encode_metadata_record,
)
from odradek.wire.records import Record, build_batch
from tests.coordinator.memory_metadata_log import MemoryMetadataLog

EPOCH = 1


class MemoryControllersLog(MemoryMetadataLog):
    """Begins with the records of a leader that is the only voter, at this address."""

    start_offset = 0
    leader_epoch = EPOCH

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.directory_id = os.urandom(16)
        self._metadata_version: int | None = None
        """None: control records."""
        self._batches: list[bytes] = []
        self._ends: list[int] = []
        self._watchers: list = []
        voter = VoterWithEndpoints(
            voter_id=node_id,
            voter_directory_id=self.directory_id,
            endpoints=[Endpoint(name="CONTROLLER", host=host, port=port)],
            kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        known = [Voter(voter_id=node_id)]
        super().__init__(
            LeaderChangeMessage(version=0, leader_id=node_id, voters=known, granting_voters=known),
            KRaftVersionRecord(version=0, kraft_version=1),
            VotersRecord(version=0, voters=[voter]),
        )

    def appending(self, records, metadata_version):
        self._metadata_version = metadata_version
        return (yield from super().appending(records, metadata_version))

    def _hold(self, records) -> None:
        first, level, now_ms = self.end_offset, self._metadata_version, int(time.time() * 1000)
        if level is None:
            pairs = [encode_control_record(one) for one in records]
        else:
            pairs = [(None, encode_metadata_record(one, version_of(one, level))) for one in records]
        rows = [Record(first + number, now_ms, *pair) for number, pair in enumerate(pairs)]
        self._batches.append(bytes(build_batch(rows, leader_epoch=EPOCH, control=level is None)))
        super()._hold(records)
        self._ends.append(self.end_offset)
        watchers, self._watchers = self._watchers, []
        for appended in watchers:
            appended()

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for batch in self._batches[bisect_right(self._ends, offset) :]:
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return found

    def end_of_epoch(self, epoch: int) -> EndOfEpoch:
        return EndOfEpoch(EPOCH, self.end_offset) if epoch >= EPOCH else EndOfEpoch(epoch, 0)

    def newest_snapshot(self) -> SnapshotName | None:
        return None

    def snapshot_size(self, snapshot: SnapshotName) -> int | None:
        return None

    def read_snapshot(self, snapshot: SnapshotName, position: int, max_bytes: int) -> bytes:
        raise AssertionError("there are no snapshots")

    def watch(self, appended) -> None:
        self._watchers.append(appended)

    def unwatch(self, appended) -> None:
        if appended in self._watchers:
            self._watchers.remove(appended)
