"""A node with one log directory, which is full: other processes and a real kernel."""

from __future__ import annotations

import resource

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.bad_days import (
    leader_of,
    lines_with,
    produce,
    produce_all,
    values_at,
    wait_for_equal_logs,
    wait_for_isr,
    waits,
)
from compat_tests.cluster.sharing import QUICK, WITNESS, SharedControllers
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember
from odradek.wire.errors import ErrorCode

FULL, OTHER = 17, WITNESS
FILE_BYTES_MAX = 300_000
"""Of a file of the process: what is written after it is refused, as on a full disk (EFBIG)."""


def test_a_leader_whose_only_directory_is_full_ends_and_another_leads_with_all_acknowledged_records(
    troubled_controllers: SharedControllers, witness: OdradekMember
) -> None:
    topic = "full"
    other = witness
    with OdradekMember(troubled_controllers, FULL, QUICK) as full:
        create(other.bootstrap_servers, topic, [FULL, OTHER], min_insync_replicas="2")
        for node in (full, other):
            wait_for_isr(node.bootstrap_servers, topic, FULL, OTHER)
        side, new = Side("full", full.bootstrap_servers), Side("other", other.bootstrap_servers)
        resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, resource.RLIM_INFINITY))
        acknowledged = []
        while produce(side, topic, value := b"%d" % len(acknowledged) * 50_000) is ErrorCode.NONE:
            acknowledged.append(value)
        assert len(acknowledged) > 1
        waits(lambda: leader_of(other.bootstrap_servers, topic) == OTHER, "the other one leads")
        assert full.process.wait(DEADLINE_SECONDS) == 1
        assert len(lines_with(full, "stopping, since no data directory is left that works")) == 1
        side.close()
        full.start()
        wait_for_isr(other.bootstrap_servers, topic, FULL, OTHER)
        produce_all(new, topic, b"after")
        wait_for_equal_logs(topic, full.data_dir, other.data_dir)
        assert values_at(new, topic) == [*acknowledged, b"after"]
        new.close()
