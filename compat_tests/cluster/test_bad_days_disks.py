"""A node that returns with another disk than it had: an older one, an empty one, one of somebody else."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.bad_days import (
    TIMESTAMP,
    leader_of,
    lines_with,
    log_of,
    produce_all,
    values_at,
    wait_for_equal_logs,
    wait_for_isr,
    waits,
)
from compat_tests.cluster.sharing import FOLLOWER, LEADER, QUICK, WITNESS, SharedControllers
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember, new_cluster_id
from odradek.server.metadata import meta_properties
from odradek.wire.records import Record, build_batch

FIRST, SECOND, THIRD = LEADER, FOLLOWER, WITNESS
BOTH = (FIRST, SECOND)
STRANGER, ANOTHER = 18, 19


@pytest.fixture
def first(leader: OdradekMember) -> OdradekMember:
    return leader


@pytest.fixture
def second(follower: OdradekMember) -> OdradekMember:
    return follower


def put_back(node: OdradekMember, copy: pathlib.Path) -> None:
    shutil.rmtree(node.data_dir)
    shutil.copytree(copy, node.data_dir)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_node_with_an_older_disk_does_not_lead_and_gets_what_it_lacks(
    witness: OdradekMember, first: OdradekMember, second: OdradekMember, tmp_path: pathlib.Path, how: str
) -> None:
    """It was in sync, its copy is of a clean stop, and the node that has everything is gone when it comes."""
    topic, asked = f"older-{how}", witness.bootstrap_servers
    create(asked, topic, list(BOTH), min_insync_replicas="2")
    wait_for_isr(asked, topic, *BOTH)
    side = Side("first", first.bootstrap_servers)
    produce_all(side, topic, b"0", b"1")
    second.stop()
    copy = tmp_path / "copy"
    shutil.copytree(second.data_dir, copy)
    second.start()
    wait_for_isr(asked, topic, *BOTH)
    produce_all(side, topic, b"2", b"3")
    getattr(second, how)()
    # It is in the ELR then: the ISR is smaller than `min.insync.replicas`.
    wait_for_isr(asked, topic, FIRST)
    side.close()
    first.stop()
    waits(lambda: leader_of(asked, topic) == -1, "nobody leads")

    put_back(second, copy)
    assert len(log_of(second.data_dir, topic)) > 0
    epoch = json.loads((copy / ".kafka_cleanshutdown").read_text())["brokerEpoch"]
    second.start()
    assert lines_with(second, f"its disks are of a clean stop in broker epoch {epoch}")
    # The controllers do not elect it: its broker epoch is none of a clean stop (KIP-966).
    create(asked, f"later-{how}", [THIRD])
    assert leader_of(asked, topic) == -1
    first.start()
    wait_for_isr(asked, topic, *BOTH)
    assert leader_of(asked, topic) == FIRST
    wait_for_equal_logs(topic, first.data_dir, second.data_dir)
    side = Side("first", first.bootstrap_servers)
    waits(lambda: values_at(side, topic) == [b"0", b"1", b"2", b"3"], "all that was acknowledged is there")
    side.close()


def test_a_node_with_an_empty_disk_gets_all_of_what_others_have_and_begins_nothing_that_only_it_had(
    witness: OdradekMember, first: OdradekMember, second: OdradekMember
) -> None:
    topic, own, asked = "emptied", "its-own", witness.bootstrap_servers
    create(asked, topic, list(BOTH), min_insync_replicas="1")
    create(asked, own, [SECOND])
    wait_for_isr(asked, topic, *BOTH)
    side, own_side = Side("first", first.bootstrap_servers), Side("second", second.bootstrap_servers)
    produce_all(side, topic, b"0", b"1")
    produce_all(own_side, own, b"0")
    own_side.close()
    second.kill()
    shutil.rmtree(second.data_dir)
    told = len(second.log)
    second.start()
    assert len(lines_with(second, "its disks know of no clean stop", since=told)) == 1
    wait_for_isr(asked, topic, *BOTH)
    wait_for_equal_logs(topic, first.data_dir, second.data_dir)
    produce_all(side, topic, b"2")
    assert values_at(side, topic) == [b"0", b"1", b"2"]
    side.close()
    # Its only replica is gone. An empty one in its place would say that there was nothing.
    assert not (second.data_dir / f"{own}-0").exists()
    assert len(lines_with(second, "may be in a log directory that", f"{own}-0")) == 1


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("whose", ["cluster", "node"])
def test_the_disk_of_another_cluster_or_node_is_refused_in_one_sentence_and_stays_as_it_is(
    troubled_controllers: SharedControllers, whose: str
) -> None:
    stranger = OdradekMember(troubled_controllers, STRANGER, QUICK)
    cluster_id, node_id = troubled_controllers.cluster_id, STRANGER
    if whose == "cluster":
        cluster_id = other = new_cluster_id()
    else:
        node_id, other = ANOTHER, str(ANOTHER)
    log = stranger.data_dir / "topic-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(bytes(build_batch([Record(0, TIMESTAMP, None, b"value")])))
    meta_properties.write(
        str(stranger.data_dir), cluster_id, node_id, "AAAAAAAAAAAAAAAAAAAAbw", for_member=True
    )
    before = contents(stranger.data_dir)
    assert len(before) == 2
    try:
        assert stranger.begin().wait(DEADLINE_SECONDS) == 1
        assert len(lines_with(stranger, whose, other)) == 1, stranger.log
        after = contents(stranger.data_dir)
        assert {path: after.get(path) for path in before} == before
    finally:
        stranger.kill()
        shutil.rmtree(stranger.directory, ignore_errors=True)


def test_a_node_that_was_away_while_others_wrote_gets_what_it_lacks(
    witness: OdradekMember, first: OdradekMember, second: OdradekMember
) -> None:
    topic, asked = "away", witness.bootstrap_servers
    create(asked, topic, list(BOTH), min_insync_replicas="1")
    wait_for_isr(asked, topic, *BOTH)
    second.stop()
    side = Side("first", first.bootstrap_servers)
    produce_all(side, topic, *(b"%d" % number for number in range(50)))
    assert isr_of(asked, topic) == {FIRST}
    side.close()
    second.start()
    wait_for_isr(asked, topic, *BOTH)
    wait_for_equal_logs(topic, first.data_dir, second.data_dir)
