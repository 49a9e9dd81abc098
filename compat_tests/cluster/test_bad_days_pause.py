"""A leader that is paused for longer than its session, and wakes up believing that it leads."""

from __future__ import annotations

import os
import signal

from compat_tests.cluster.bad_days import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    leader_of,
    lines_with,
    produce_all,
    produce_request,
    produced,
    values_at,
    values_read,
    wait_for_equal_logs,
    wait_for_isr,
    wait_for_line,
    waits,
)
from compat_tests.cluster.sharing import FOLLOWER, LEADER
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.produce import ProduceRequest

PAUSED, OTHER = LEADER, FOLLOWER


def test_a_leader_that_wakes_up_from_a_pause_acknowledges_nothing_that_is_lost_and_shows_nothing_that_is_cut(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    """The requests are in its sockets when it wakes: it reads them before it hears of the other leader."""
    topic, paused, other = "paused", leader, follower
    told = len(other.log)
    create(other.bootstrap_servers, topic, [PAUSED, OTHER], min_insync_replicas="1")
    wait_for_isr(other.bootstrap_servers, topic, PAUSED, OTHER)
    old, new = Side("paused", paused.bootstrap_servers), Side("other", other.bootstrap_servers)
    produce_all(old, topic, b"before")
    names = [f"client-{number}" for number in range(3)]
    for name in names:
        assert values_read(old.ask(fetch_request(topic), FETCH_VERSION, name)) == [b"before"]
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        waits(lambda: leader_of(other.bootstrap_servers, topic) == OTHER, "the other one leads")
        produce_all(new, topic, b"new")
        old.request(produce_request(topic, [b"by one"], 1), PRODUCE_VERSION, names[0])
        old.request(produce_request(topic, [b"by all"], -1, 3_000), PRODUCE_VERSION, names[1])
        old.request(fetch_request(topic), FETCH_VERSION, names[2])
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    assert len(lines_with(other, f"broker {PAUSED} is fenced", since=told)) == 1
    read = old.answer(FetchRequest, FETCH_VERSION, names[2])
    by_one = produced(old.answer(ProduceRequest, PRODUCE_VERSION, names[0]))
    by_all = produced(old.answer(ProduceRequest, PRODUCE_VERSION, names[1]))
    assert by_one[0] in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert by_all[0] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert read.responses[0].partitions[0].error_code or values_read(read) == [b"before"]
    wait_for_isr(other.bootstrap_servers, topic, PAUSED, OTHER)
    wait_for_equal_logs(topic, paused.data_dir, other.data_dir)
    if by_one[0] is ErrorCode.NONE:
        wait_for_line(paused, f"{topic}-0: cut at 1, as its leader has it")
    assert values_at(new, topic) == [b"before", b"new"]
    for side in (old, new):
        side.close()
