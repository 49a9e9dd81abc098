"""The beginning of the metadata log is gone: a node gets the snapshot in its place."""

from __future__ import annotations

import os
import signal

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.test_membership import create_on
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember, committed_by
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.metadata import MetadataRequest

SHORT_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.max.snapshot.interval.ms": "1000",
    "metadata.max.retention.bytes": "4096",
    "internal.metadata.log.segment.bytes": "4096",
    "internal.metadata.max.batch.size.in.bytes": "4096",
    "internal.metadata.delete.delay.millis": "0",
}
TOOK = "took the snapshot of the metadata"


def first_offset(controllers: Controllers) -> int:
    """Where the metadata log of the controller begins."""
    log = controllers.data_dir / "__cluster_metadata-0"
    return min(int(path.stem) for path in log.glob("*.log"))


def delete(side: Side, name: str) -> None:
    topics = [DeleteTopicState(name=name)]
    answer = side.ask(DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)
    assert answer.responses[0].error_code == 0


def make_the_log_short(controllers: Controllers, side: Side, node_id: int) -> None:
    """Creates and deletes topics until nothing is left of what the log has now."""
    end, number = committed_by(controllers), 0
    assert end > 0

    def is_short() -> bool:
        nonlocal number
        name = f"filler-{end}-{number}"
        number += 1
        create_on(side, name, node_id)
        delete(side, name)
        return first_offset(controllers) > end

    wait_until(is_short, "the beginning of the log is gone", seconds=4 * DEADLINE_SECONDS)


def topics_of(node: OdradekMember) -> set[str]:
    side = Side("odradek", node.bootstrap_servers)
    answer = side.ask(MetadataRequest(topics=None), 9)
    side.close()
    return {topic.name for topic in answer.topics}


@pytest.mark.nightly
def test_nodes_that_were_away_or_are_new_take_the_snapshot_and_what_it_changes() -> None:
    with Controllers(SHORT_LOG) as controllers:
        assert isinstance(controllers, Controllers)
        with OdradekMember(controllers, 1) as helper, OdradekMember(controllers, 2) as node:
            side = Side("odradek", helper.bootstrap_servers)
            for name in ("stays", "goes", "again"):
                create_on(side, name, 2)
            wait_until(lambda: {"stays", "goes", "again"} <= topics_of(node), "all are known", seconds=30)
            before = node.log.count(TOOK)
            os.kill(node.pid, signal.SIGSTOP)
            try:
                delete(side, "goes")
                delete(side, "again")
                make_the_log_short(controllers, side, 1)
            finally:
                os.kill(node.pid, signal.SIGCONT)
            wait_until(
                lambda: node.log.count(TOOK) > before, "a snapshot was taken", seconds=DEADLINE_SECONDS
            )
            wait_until(lambda: topics_of(node) == {"stays"}, "it is published", seconds=DEADLINE_SECONDS)
            wait_until(
                lambda: {one.name for one in node.data_dir.glob("*-0")} == {"stays-0"},
                "the deleted topics are off the disk",
                seconds=DEADLINE_SECONDS,
            )
            create_on(side, "again", 2)
            wait_until(lambda: topics_of(node) == {"stays", "again"}, "the log goes on", seconds=30)
            with OdradekMember(controllers, 3) as new:
                assert TOOK in new.log
                assert topics_of(new) == {"stays", "again"}
            side.close()
