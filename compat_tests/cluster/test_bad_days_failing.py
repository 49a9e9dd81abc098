"""A disk that is full or fails, under a follower and under a leader."""

from __future__ import annotations

import errno
import itertools
import logging
import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.cluster.bad_days import (
    leader_of,
    produce,
    produce_all,
    values_at,
    wait_for_equal_logs,
    wait_for_isr,
    waits,
)
from compat_tests.cluster.failing_disk import FailingDisk, Failure
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.sharing import QUICK, WITNESS, SharedControllers
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember
from odradek.wire.errors import ErrorCode

OTHER, CUT_OFF = WITNESS, 16
NUMBERS = itertools.count(20)
"""Of nodes: one that leads nothing when it stops keeps its number for a session."""


@pytest.fixture
def failing(
    troubled_controllers: SharedControllers,
    disk: FailingDisk,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Inside]:
    """With two log directories: where one fails the node goes on."""
    caplog.set_level(logging.INFO, logger="odradek")
    with Inside(troubled_controllers, next(NUMBERS), tmp_path, directories=2, properties=QUICK) as node:
        yield node


def home_of(node: Inside, topic: str) -> pathlib.Path:
    (home,) = [one for one in node.directories if (one / f"{topic}-0").is_dir()]
    return home


def lines_with(caplog: pytest.LogCaptureFixture, *parts: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if all(part in line for part in parts)]


def test_a_follower_on_a_full_disk_leaves_the_isr_waits_for_room_and_comes_back(
    failing: Inside, witness: OdradekMember, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    topic, asked = "full-follower", witness.bootstrap_servers
    create(asked, topic, [OTHER, failing.node_id], min_insync_replicas="1")
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    side = Side("leader", asked)
    produce_all(side, topic, b"0")
    home = str(home_of(failing, topic))
    disk.failures.append(Failure(home, errno.ENOSPC, "write"))
    produce_all(side, topic, b"1")
    wait_for_isr(asked, topic, OTHER)
    # Its other directory serves on.
    assert failing.server.store.failing_disks.failures == {}
    assert (
        len(lines_with(caplog, f"{topic}-0: a change of the replica failed", "No space left on device")) == 1
    )
    disk.failures.clear()
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    produce_all(side, topic, b"2")
    wait_for_equal_logs(topic, home_of(failing, topic), witness.data_dir)
    side.close()


@pytest.mark.parametrize(
    "failure", [(errno.ENOSPC, "write"), (errno.EIO, "open", "write", "sync")], ids=["full", "broken"]
)
def test_a_leader_gives_up_a_full_or_broken_directory_and_another_leads_with_all_that_was_acknowledged(
    failing: Inside,
    witness: OdradekMember,
    disk: FailingDisk,
    caplog: pytest.LogCaptureFixture,
    failure: tuple[int, str, str, str],
) -> None:
    code, *operations = failure
    topic, asked = f"failing-leader-{code}", witness.bootstrap_servers
    create(asked, topic, [failing.node_id, OTHER], min_insync_replicas="1")
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    side, new = Side("leader", failing.bootstrap_servers), Side("other", asked)
    produce_all(side, topic, b"0")
    home = str(home_of(failing, topic))
    disk.failures.append(Failure(home, code, *operations))
    assert produce(side, topic, b"refused") in (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    waits(lambda: leader_of(asked, topic) == OTHER, "the other one leads")
    wait_for_isr(asked, topic, OTHER)
    assert len(lines_with(caplog, f"the data directory {home} has failed, its partitions are offline")) == 1
    produce_all(new, topic, b"1")
    disk.failures.clear()
    side.close()
    # As in Kafka, it is back with the next start.
    failing.stop()
    failing.start()
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    wait_for_equal_logs(topic, home_of(failing, topic), witness.data_dir)
    assert values_at(new, topic) == [b"0", b"1"]
    new.close()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_replica_whose_flush_has_failed_is_back_after_a_rescan_and_replicated_again(
    failing: Inside, witness: OdradekMember, disk: FailingDisk, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    topic, asked = f"flushed-{role}", witness.bootstrap_servers
    replicas = [failing.node_id, OTHER] if role == "leader" else [OTHER, failing.node_id]
    create(asked, topic, replicas, min_insync_replicas="1", flush_messages="1")
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    side = Side("leader", failing.bootstrap_servers if role == "leader" else asked)
    produce_all(side, topic, b"0")
    partition = failing.server.store.get(topic, 0)
    assert partition is not None
    home = str(home_of(failing, topic))
    # One sync of its log fails, nothing else: the disk as a whole is sound. No flush journal stands in.
    for journal in failing.server.store.flush_journals:
        failing.call(lambda journal=journal: setattr(journal, "has_failed", True))  # type: ignore[misc]
    disk.failures.append(Failure(home, errno.EIO, "sync", part=f"{topic}-0/", count=1))
    produce(side, topic, b"1")
    waits(lambda: bool(lines_with(caplog, f"{topic}-0 is back, and nothing of it is lost")), "it is back")
    wait_for_isr(asked, topic, OTHER, failing.node_id)
    produce_all(side, topic, b"2")
    wait_for_equal_logs(topic, home_of(failing, topic), witness.data_dir)
    assert values_at(side, topic) in ([b"0", b"1", b"2"], [b"0", b"2"])
    assert leader_of(asked, topic) == replicas[0]
    assert len(lines_with(caplog, f"{topic}-0 is offline: flushing")) == 1
    side.close()


def test_a_log_is_cut_though_the_flush_journal_has_failed_that_holds_what_goes(
    troubled_controllers: SharedControllers,
    witness: OdradekMember,
    disk: FailingDisk,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A replay of the journal would bring it back: all in it is flushed first, and then the journal goes."""
    caplog.set_level(logging.INFO, logger="odradek")
    topic, asked = "journaled", witness.bootstrap_servers
    properties = {**QUICK, **troubled_controllers.behind_the_proxy, "log.initial.task.delay.ms": "100"}
    with Inside(troubled_controllers, CUT_OFF, tmp_path, properties=properties) as node:
        create(asked, topic, [CUT_OFF, OTHER], min_insync_replicas="1", flush_messages="1")
        wait_for_isr(asked, topic, CUT_OFF, OTHER)
        side, new = Side("the old leader", node.bootstrap_servers), Side("the new leader", asked)
        (journal,) = node.server.store.flush_journals
        produced: list[bytes] = []

        def is_in_use() -> bool:
            produced.append(b"%d" % len(produced))
            produce_all(side, topic, produced[-1])
            return journal.generation > 0

        waits(is_in_use, "the flush journal is in use")
        troubled_controllers.proxy.requests.cut()
        waits(lambda: leader_of(asked, topic) == OTHER, "the other one leads")
        assert produce(side, topic, b"goes", acks=1) is ErrorCode.NONE
        disk.failures.append(Failure(str(tmp_path), errno.EIO, "sync", part="flush-journal"))
        assert produce(side, topic, b"goes, too", acks=1) is ErrorCode.NONE
        assert journal.has_failed
        disk.failures.clear()
        produce_all(new, topic, b"new")
        troubled_controllers.proxy.requests.mend()
        wait_for_isr(asked, topic, CUT_OFF, OTHER)
        wait_for_equal_logs(topic, home_of(node, topic), witness.data_dir)
        assert values_at(new, topic) == [*produced, b"new"]
        assert not list(tmp_path.glob("data-*/flush-journal.*"))
        cut = f"{topic}-0: cut at {len(produced)}, as its leader has it"
        assert len(lines_with(caplog, cut)) == 1
        for one in (side, new):
            one.close()
