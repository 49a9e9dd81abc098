"""`odradek consume -g`: reads as a member of a group, and commits what was printed."""

import sys
import time
from collections.abc import Callable, Collection, Sequence

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.group_member import GroupMember
from odradek.client.group_offsets import GroupHasMembers
from odradek.client.member_settings import MemberSettings
from odradek.client.membership import Partitions
from odradek.client.reading import Bounds, Reader
from odradek.commands.output import quantity
from odradek.commands.reading_range import Range
from odradek.commands.record_printer import RecordPrinter
from odradek.wire.errors import ErrorCode

COMMIT_S = 5.0
"""How often offsets are committed meanwhile."""
POLL_S = 0.2
"""How long records, or partitions, are waited for in one step."""


class GroupReading:
    """One reading by one member, to its end; see `run`."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        settings: MemberSettings,
        wanted: Range,
        printer: RecordPrinter,
        *,
        read_committed: bool,
        follows: bool,
        is_quiet: bool,
    ) -> None:
        """`wanted` starts at "stored"; `is_quiet`: no notes of deleted records."""
        self._cluster, self._wanted, self._printer = cluster, wanted, printer
        self._read_committed, self._follows, self._is_quiet = read_committed, follows, is_quiet
        self._skips = settings.auto_offset_reset != "none"
        self._member = GroupMember(
            cluster.settings, group, topics, settings, revoked=self._give_up, lost=self._lose
        )
        self._assigned: Partitions | None = None
        """Partitions that the reader reads."""
        self._bounds: dict[TopicPartition, Bounds] = {}
        self._reader: Reader | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit = time.monotonic() + COMMIT_S

    def run(self, progressed: Callable[[], object]) -> None:
        """Reads until enough is printed, or, unless it follows, to the end of what the member has. Commits
        and leaves, also after a failure, an interrupt, or at a closed pipe. ClientError if the last commit is
        refused: what was printed comes again then."""
        with self._member:
            try:
                while not self._printer.is_full and self._step():
                    progressed()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    self._member.disconnect()
                self._commit_or_tell(self._printer.positions)
                raise
            self._commit(self._printer.positions)

    def _step(self) -> bool:
        """False at the end."""
        reader = self._reader
        is_idle = reader is None or reader.is_done
        self._member.poll(_now_ms(), POLL_S if is_idle else 0.0)
        if self._member.assigned is not self._assigned:
            self._take_over()
        assert self._reader is not None
        if self._reader.is_done and self._member.is_settled and (self._assigned or not self._follows):
            return False
        if not self._reader.is_done:
            self._read(self._reader)
        if time.monotonic() >= self._next_commit:
            self._next_commit = time.monotonic() + COMMIT_S
            self._commit_or_tell(self._printer.positions, is_last=False)
        return True

    def _read(self, reader: Reader) -> None:
        for fetched in reader.poll(POLL_S):
            self._printer.take(fetched)
            self._member.poll(_now_ms())
            if self._printer.is_full or self._member.assigned is not self._assigned:
                break  # the next reader begins after what was printed

    def _take_over(self) -> None:
        """Begins to read what the member has now."""
        self._assigned = self._member.assigned
        positions = self._printer.positions
        kept = {
            key: (positions.get(key, start), end)
            for key, (start, end) in self._bounds.items()
            if key in self._assigned
        }
        new = sorted(self._assigned - kept.keys())
        starts = self._member.positions(new, self._read_committed)
        self._bounds = kept | self._wanted.bounds(
            self._cluster, new, starts, read_committed=self._read_committed, follows=self._follows
        )
        skipped = (tell_nothing if self._is_quiet else tell_skipped) if self._skips else None
        self._reader = Reader(
            self._cluster, self._bounds, read_committed=self._read_committed, skipped=skipped
        )

    # Offsets

    def _give_up(self, partitions: Partitions) -> None:
        self._commit_or_tell(partitions)
        self._forget(partitions)

    def _lose(self, partitions: Partitions) -> None:
        if self._uncommitted(partitions):
            _tell(
                f"the group has gone on without this member ({quantity(len(partitions), 'partition')}): "
                "what was printed since the last commit may come again"
            )
        self._forget(partitions)

    def _forget(self, partitions: Partitions) -> None:
        for key in partitions:
            self._bounds.pop(key, None)
            self._committed.pop(key, None)
            self._printer.positions.pop(key, None)

    def _uncommitted(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        positions = self._printer.positions
        return {
            key: positions[key]
            for key in partitions
            if key in positions and self._committed.get(key) != positions[key]
        }

    def _commit(self, partitions: Collection[TopicPartition]) -> None:
        offsets = self._uncommitted(partitions)
        if offsets:
            self._member.commit(offsets)
            self._committed |= offsets

    def _commit_or_tell(self, partitions: Collection[TopicPartition], *, is_last: bool = True) -> None:
        """One that meets a rebalance is made again before the partitions are given up."""
        try:
            self._commit(partitions)
        except ClientError as error:
            is_early = isinstance(error, GroupHasMembers) and error.code == ErrorCode.REBALANCE_IN_PROGRESS
            if is_last or not is_early:
                _tell(f"{error}; what was printed since the last commit may come again")


def tell_skipped(topic: str, partition: int, wanted: int, earliest: int) -> None:
    """Note on records that were deleted before they were read."""
    _tell(
        f"the records of {topic}, partition {partition} from {wanted} to {earliest - 1} were "
        "deleted before they were read"
    )


def tell_nothing(topic: str, partition: int, wanted: int, earliest: int) -> None:
    """In place of `tell_skipped`."""


def _tell(text: str) -> None:
    print(f"odradek: {text}", file=sys.stderr)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
