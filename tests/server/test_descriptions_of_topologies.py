"""Descriptions of topologies (KIP-1331) on a whole broker: asked for, stored, described, and there after a
kill, or asked for again."""

import shutil
import time

import pytest

import odradek
from odradek.config.option_list import DESCRIPTIONS_IN_FILE, DESCRIPTIONS_IN_MEMORY
from odradek.server.coordination.topology_file import FILE_NAME
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.coordinator import group_requests as requests
from tests.coordinator.stages.description_stage import description
from tests.coordinator.stages.streams_stage import TOPOLOGIES, topology
from tests.raw_client import RawClient

PATIENCE_S = 30
OPTION = "group.streams.topology.description.plugin.class"
OPTIONS = {"offsets.topic.num.partitions": 1, "group.streams.initial.rebalance.delay.ms": 0}
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
NOT_STORED, AVAILABLE = 1, 3


class Client(RawClient):
    def beat(self, epoch):
        """The response to a heartbeat of the member `m`, once the coordinator has loaded the group."""
        request = requests.streams_beat(
            "g",
            "m",
            epoch,
            ({}, {}, {}) if epoch == 0 else None,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            topology=topology(TOPOLOGIES["plain"]) if epoch == 0 else None,
            process_id="p" if epoch == 0 else None,
            client_tags=[] if epoch == 0 else None,
        )
        return self._until_loaded(lambda: self.ask(request, 1))

    def push(self, told):
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="g", member_id="m", topology_epoch=0, topology_description=told
        )
        return self.ask(request, 0)

    def described(self):
        request = StreamsGroupDescribeRequest(group_ids=["g"], include_topology_description=True)
        group = self._until_loaded(lambda: self.ask(request, 1).groups[0])
        return group.topology_description_status, group.topology_description

    def delete(self):
        return self.ask(DeleteGroupsRequest(groups_names=["g"]), 3).results[0].error_code

    def _until_loaded(self, ask):
        deadline = time.monotonic() + PATIENCE_S
        while (response := ask()).error_code in LOADING:
            assert time.monotonic() < deadline, response
            time.sleep(0.01)
        return response


def new_group(client):
    """A group whose member is asked."""
    made = [CreatableTopic(name="in", num_partitions=2, replication_factor=1)]
    assert client.ask(CreateTopicsRequest(topics=made, timeout_ms=30_000), 5).topics[0].error_code == 0
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    joined = client.beat(0)
    assert joined.error_code == 0
    assert joined.topology_description_required
    return joined.member_epoch


def broker(directory, name):
    return odradek.Broker(data_dir=directory, options={**OPTIONS, OPTION: name})


@pytest.mark.parametrize("name", [DESCRIPTIONS_IN_MEMORY, DESCRIPTIONS_IN_FILE])
def test_a_description_is_kept_until_its_group_is_deleted(tmp_path, name):
    with broker(tmp_path, name) as running:
        client = Client(running.port)
        new_group(client)
        assert client.described() == (NOT_STORED, None)
        assert client.push(description("chain")).error_code == 0
        status, found = client.described()
        assert status == AVAILABLE
        assert [node.name for node in found.subtopologies[0].nodes] == ["read", "count", "write"]
        assert (tmp_path / FILE_NAME).exists() is (name == DESCRIPTIONS_IN_FILE)
        assert client.beat(-1).error_code == 0
        assert client.delete() == 0
        assert client.beat(0).topology_description_required
        assert client.described() == (NOT_STORED, None)
        client.close()


def test_the_file_brings_it_back_after_a_kill(tmp_path):
    with broker(tmp_path / "data", DESCRIPTIONS_IN_FILE) as running:
        client = Client(running.port)
        epoch = new_group(client)
        assert client.push(description("global")).error_code == 0
        # What a kill would leave.
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        client.close()
    (tmp_path / "copy" / ".lock").unlink()
    with broker(tmp_path / "copy", DESCRIPTIONS_IN_FILE) as running:
        client = Client(running.port)
        status, found = client.described()
        assert status == AVAILABLE
        assert found.global_stores[0].processor.stores == ["table"]
        assert not client.beat(epoch).topology_description_required
        client.close()


def test_one_that_was_in_memory_is_asked_for_again_after_a_restart(tmp_path):
    with broker(tmp_path, DESCRIPTIONS_IN_MEMORY) as running:
        client = Client(running.port)
        epoch = new_group(client)
        assert client.push(description("chain")).error_code == 0
        client.close()
    with broker(tmp_path, DESCRIPTIONS_IN_MEMORY) as running:
        client = Client(running.port)
        assert client.described() == (NOT_STORED, None)
        assert client.beat(epoch).topology_description_required
        assert client.push(description("chain")).error_code == 0
        assert client.described()[0] == AVAILABLE
        client.close()


def test_a_description_without_its_group_is_dropped(tmp_path):
    with broker(tmp_path, DESCRIPTIONS_IN_FILE) as running:
        client = Client(running.port)
        new_group(client)
        assert client.push(description("chain")).error_code == 0
        client.beat(-1)
        # As after a kill between the deletion of the group and that of its description.
        content = (tmp_path / FILE_NAME).read_bytes()
        assert client.delete() == 0
        client.close()
    (tmp_path / FILE_NAME).write_bytes(content)
    with broker(tmp_path, DESCRIPTIONS_IN_FILE) as running:
        client = Client(running.port)
        assert client.beat(0).topology_description_required
        deadline = time.monotonic() + PATIENCE_S
        while (tmp_path / FILE_NAME).stat().st_size > 16:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client.close()
