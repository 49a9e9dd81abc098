"""A node with `process.roles=controller`, from start to stop, on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.coordinator.cluster.features import METADATA_VERSION, first_levels
from odradek.coordinator.controller.bootstrap import Beginning, beginning, first_records
from odradek.coordinator.controller.log import LoadedBatch
from odradek.server.broker import BrokerServer
from odradek.server.controlling.controller_server import ControllerServer
from odradek.server.metadata.feature_levels import read_levels
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.server.metadata.metadata_snapshots import snapshot_ids
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    VotersRecord,
    VoterWithEndpoints,
)
from tests.raw_client import AsyncRawClient
from tests.server.metadata_logs import write_bootstrap_snapshot

NODE = 100
PATIENCE_S = 20
INDEXES = (".index", ".timeindex")


def config_of(directory: pathlib.Path, *more: str, **given):
    return load(
        sets=[
            "process.roles=controller",
            f"node.id={NODE}",
            "controller.quorum.bootstrap.servers=127.0.0.1:9093",
            "controller.listener.names=CONTROLLER",
            "listeners=CONTROLLER://127.0.0.1:0",
            f"log.dirs={directory}",
            *more,
        ],
        **given,
    )


@contextlib.asynccontextmanager
async def running(directory: pathlib.Path, *more: str, on_end=lambda: None, **given):
    server = ControllerServer(config_of(directory, *more, **given), on_end=on_end)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(server: ControllerServer, request, version: int):
    client = await AsyncRawClient.connect(server.addresses[0][2])
    try:
        return await client.ask(request, version)
    finally:
        client.close()


async def set_for_all(server: ControllerServer, name: str, value: str) -> int:
    """The error code."""
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = await ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return answer.responses[0].error_code


def settings(server: ControllerServer) -> dict[str, str]:
    return dict(server.controlling.controller.view.broker_configs.get(None, {}))


def test_a_new_directory_is_that_of_a_cluster_which_goes_on_after_each_stop(tmp_path):
    async def story():
        async with running(tmp_path) as first:
            described = await ask(first, DescribeClusterRequest(endpoint_type=2), 2)
            assert described.cluster_id == first.cluster_id
            assert [one.broker_id for one in described.brokers] == [NODE]
            assert first.controlling.controller.view.features == {
                name: level for name, level in first_levels().items() if level
            }
            assert await set_for_all(first, "log.retention.ms", "7000") == 0
            kept, levels = settings(first), first.controlling.controller.view.features
            assert (first.log.leader_epoch, kept["log.retention.ms"]) == (1, "7000")
        async with running(tmp_path) as second:
            assert (second.cluster_id, second.log.leader_epoch) == (first.cluster_id, 2)
            assert (settings(second), second.controlling.controller.view.features) == (kept, levels)

    asyncio.run(story())


def test_it_begins_with_the_levels_that_were_asked_for_and_only_a_new_one(tmp_path):
    async def story():
        asked = read_levels((), "4.0")
        async with running(tmp_path, first_levels=asked) as server:
            assert server.controlling.controller.metadata_version == asked[METADATA_VERSION]
        with pytest.raises(ConfigError, match="is not new"):
            await ControllerServer(config_of(tmp_path, first_levels=asked)).start()
        async with running(tmp_path, cluster_id=server.cluster_id):
            pass
        with pytest.raises(ConfigError, match=f"is of cluster {server.cluster_id}"):
            await ControllerServer(config_of(tmp_path, cluster_id="another")).start()

    asyncio.run(story())


def test_a_formatted_directory_begins_with_its_records(tmp_path):
    levels = first_levels("4.1")
    voter = ThisVoter(NODE, bytes(range(16)))
    write_bootstrap_snapshot(
        OsDisk(),
        str(tmp_path / DIRECTORY),
        voter.control_records(),
        first_records(levels, 1),
        levels[METADATA_VERSION],
        1000,
    )

    async def story():
        with pytest.raises(ConfigError, match="is not new"):
            await ControllerServer(config_of(tmp_path, first_levels=first_levels())).start()
        async with running(tmp_path) as server:
            assert server.controlling.controller.metadata_version == levels[METADATA_VERSION]

    asyncio.run(story())


def test_a_log_begins_a_cluster_with_a_metadata_version_that_counts():
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=33)
    begin, end = BeginTransactionRecord(name="b"), EndTransactionRecord()

    def found(*batches):
        return beginning([LoadedBatch(batch, 0, is_snapshot=False) for batch in batches])

    assert found() == Beginning(False, False)
    assert found([level]) == found([begin, level], [end]) == Beginning(True, False)
    assert found([begin, level]) == Beginning(False, True)
    assert found([begin, level], [AbortTransactionRecord(reason="r")]) == Beginning(False, False)


def test_snapshots_are_written_as_it_goes_and_make_the_same_state(tmp_path):
    small = "metadata.log.max.record.bytes.between.snapshots=1000"

    async def story():
        async with running(tmp_path, small) as server:
            for number in range(30):
                assert await set_for_all(server, "log.retention.ms", str(5000 + number)) == 0
            deadline = time.monotonic() + PATIENCE_S
            while not server.log.snapshots:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            kept = settings(server)
        (newest, *_) = reversed(snapshot_ids(path.name for path in (tmp_path / DIRECTORY).iterdir()))
        assert newest.epoch == 1
        async with running(tmp_path, small) as again:
            assert settings(again) == kept
            assert again.log.snapshots[-1].end_offset >= newest.end_offset

    asyncio.run(story())


def test_a_damaged_log_is_repaired_but_not_where_users_may_be_lost(tmp_path, caplog):
    async def story():
        async with running(tmp_path) as server:
            assert await set_for_all(server, "log.retention.ms", "7000") == 0
        (segment,) = (tmp_path / DIRECTORY).glob("*.log")
        content = bytearray(segment.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 40] = bytes(40)
        segment.write_bytes(content)
        guarded = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        with pytest.raises(ConfigError, match="ACLs or users may be lost"):
            await ControllerServer(config_of(tmp_path, guarded)).start()
        async with running(tmp_path) as again:
            assert again.cluster_id == server.cluster_id
            assert again.log.leader_epoch > server.log.leader_epoch
            assert METADATA_VERSION in again.controlling.controller.view.features
        assert [path.name for path in tmp_path.glob("*.damaged")] == [f"{DIRECTORY}.0.damaged"]
        assert "could be read" in caplog.text

    asyncio.run(story())


def test_a_directory_of_others_is_refused_in_one_sentence(tmp_path):
    async def story():
        alone = BrokerServer(load(listen="127.0.0.1:0", data_dir=tmp_path / "alone"))
        await alone.start()
        await alone.stop()
        with pytest.raises(ConfigError, match="belongs to a node alone"):
            await ControllerServer(config_of(tmp_path / "alone")).start()
        async with running(tmp_path / "mine"):
            with pytest.raises(ConfigError, match="is in use by another node"):
                await ControllerServer(config_of(tmp_path / "mine")).start()
        with pytest.raises(ConfigError, match=f"of node {NODE}, not of node.id=101"):
            await ControllerServer(config_of(tmp_path / "mine", "node.id=101")).start()
        with pytest.raises(ConfigError, match="is for `odradek serve`"):
            await BrokerServer(config_of(tmp_path / "mine")).start()

    asyncio.run(story())


def test_the_log_of_several_voters_is_refused(tmp_path):
    class OfSeveral(ThisVoter):
        def voters_record(self) -> VotersRecord:
            (mine,) = super().voters_record().voters
            others = [VoterWithEndpoints(voter_id=one, voter_directory_id=bytes(16)) for one in (101, 102)]
            return VotersRecord(version=0, voters=[mine, *others])

    path = tmp_path / DIRECTORY
    DiskMetadataLog(OsDisk(), str(path), OfSeveral(NODE, bytes(range(16))), now_ms=lambda: 1000).close()
    before = {one.name: one.read_bytes() for one in path.iterdir() if one.suffix not in INDEXES}
    with pytest.raises(ConfigError, match="several voters, among them 101, 102"):
        asyncio.run(ControllerServer(config_of(tmp_path)).start())
    assert {one.name: one.read_bytes() for one in path.iterdir() if one.suffix not in INDEXES} == before


def test_it_ends_when_its_log_cannot_be_written_any_more(tmp_path, monkeypatch):
    ended = []

    def fails(*_):
        raise OSError(5, "Input/output error")

    async def story():
        async with running(tmp_path, on_end=lambda: ended.append(True)) as server:
            monkeypatch.setattr("os.fdatasync", fails)
            assert await set_for_all(server, "log.retention.ms", "7000") == ErrorCode.KAFKA_STORAGE_ERROR
            assert await set_for_all(server, "log.retention.ms", "7000") == ErrorCode.KAFKA_STORAGE_ERROR
            monkeypatch.undo()

    asyncio.run(story())
    assert ended == [True]
