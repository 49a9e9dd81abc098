"""Metadata logs for tests: on a disk in memory, with a clock that stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import ClusterView
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import DiskMetadataLog, MetadataLogSettings, ThisVoter
from odradek.server.metadata.metadata_snapshots import BOOTSTRAP, writing_snapshot
from odradek.storage.disk import Disk
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ControlRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk

PATH = f"data/{DIRECTORY}"
LEVEL = 33
ABORT = AbortTransactionRecord(reason="Controller failover")
DEFAULT_SETTINGS = MetadataLogSettings()
VOTER = ThisVoter(1, bytes(range(16)), (("CONTROLLER", "localhost", 9093),))


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("data")
    return disk


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """All files, and safe."""
    return MemoryDisk.of({path: bytes(file.data) for path, file in disk.files.items()})


def opened(
    disk: Disk,
    tell: Callable[[str], object] = lambda sentence: None,
    settings: MetadataLogSettings = DEFAULT_SETTINGS,
    now_ms: Callable[[], int] = lambda: 1000,
    voter: ThisVoter = VOTER,
) -> DiskMetadataLog:
    return DiskMetadataLog(disk, PATH, voter, now_ms=now_ms, settings=settings, tell=tell)


def setting(name: str, value: str | None) -> ConfigRecord:
    """For all brokers."""
    return ConfigRecord(resource_type=4, resource_name="", name=name, value=value)


def level(number: int = LEVEL) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=number)


def abort_open_transaction(log: DiskMetadataLog) -> None:
    """The first append of a controller that has loaded the log."""
    is_open = False
    for batch in log.batches():
        for record in batch.records:
            if isinstance(record, BeginTransactionRecord):
                is_open = True
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                is_open = False
    if is_open:
        log.append([ABORT], LEVEL)


def image_of(log: DiskMetadataLog) -> MetadataImage:
    """The state, without an open transaction."""
    image = MetadataImage(1, "")
    for batch in log.batches():
        for record in batch.records:
            image.replay(record)
        image.end_batch(batch.last_offset)
    if image.is_in_transaction:
        image.replay(ABORT)
    image.publish()
    return image


def view_of(log: DiskMetadataLog) -> ClusterView:
    return image_of(log).view


def settings_of(log: DiskMetadataLog) -> dict[str, str]:
    """Settings for all brokers."""
    return dict(view_of(log).broker_configs.get(None, {}))


def settings_records(settings: dict[str, str]) -> Sequence[MetadataRecord]:
    """A snapshot of settings."""
    return [level(), *(setting(name, value) for name, value in settings.items())]


def write_bootstrap_snapshot(
    disk: Disk,
    directory: str,
    control: Sequence[ControlRecord],
    records: Iterable[MetadataRecord],
    metadata_version: int,
    now_ms: int,
) -> None:
    """Format the directory of a new voter, as `kafka-storage format` does."""
    disk.make_directory(directory)
    finish(
        writing_snapshot(
            disk,
            directory,
            BOOTSTRAP,
            control,
            records,
            metadata_version=metadata_version,
            last_contained_timestamp=now_ms,
            now_ms=now_ms,
        )
    )
