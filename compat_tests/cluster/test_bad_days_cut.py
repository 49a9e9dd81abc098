"""The network fails in one direction only: between a follower and its leader, between a node and the
controllers; and a follower that gets less than the leader has to give."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.cluster.bad_days import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    leader_of,
    lines_with,
    log_of,
    produce,
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
from compat_tests.cluster.sharing import FOLLOWER, LEADER, QUICK, WITNESS, SharedControllers
from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.kit.proxy import Direction, Proxy
from compat_tests.quorum import OdradekMember
from odradek.wire.errors import ErrorCode

CUT_OFF = 14


@pytest.mark.parametrize("which", ["requests", "answers"])
def test_a_follower_that_is_cut_off_in_one_direction_leaves_the_isr_and_comes_back(
    leader: OdradekMember, follower: OdradekMember, proxy: Proxy, which: str
) -> None:
    topic, asked = f"cut-{which}", leader.bootstrap_servers
    create(asked, topic, [LEADER, FOLLOWER], min_insync_replicas="1")
    wait_for_isr(asked, topic, LEADER, FOLLOWER)
    side = Side("leader", asked)
    produce_all(side, topic, b"before")
    direction: Direction = getattr(proxy, which)
    direction.cut()
    # It goes on when the follower has left.
    produce_all(side, topic, b"while")
    wait_for_isr(asked, topic, LEADER)
    # Both are in the cluster all the time.
    assert brokers_named_by(asked) >= {LEADER, FOLLOWER}
    wait_for_line(leader, f"{topic}-0: asking for the ISR {LEADER}")
    wait_for_line(follower, f"fetching from broker {LEADER}:")
    direction.mend()
    wait_for_isr(asked, topic, LEADER, FOLLOWER)
    produce_all(side, topic, b"after")
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    assert values_at(side, topic) == [b"before", b"while", b"after"]
    side.close()


def test_damage_on_the_way_is_found_by_its_checksum_and_fetched_again(
    leader: OdradekMember, follower: OdradekMember, proxy: Proxy
) -> None:
    topic, asked = "damaged", leader.bootstrap_servers
    create(asked, topic, [LEADER, FOLLOWER], min_insync_replicas="1")
    wait_for_isr(asked, topic, LEADER, FOLLOWER)
    damaged = []

    def flip(piece: bytes) -> bytes:
        """One byte of the records in the first large answer."""
        if damaged or len(piece) < 10_000:
            return piece
        damaged.append(len(piece))
        middle = len(piece) // 2
        return piece[:middle] + bytes([piece[middle] ^ 1]) + piece[middle + 1 :]

    proxy.answers.change = flip
    side = Side("leader", asked)
    produce_all(side, topic, b"v" * 40_000)
    assert damaged
    wait_for_line(follower, f"{topic}-0: a change of the replica failed", "CORRUPT_MESSAGE")
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    side.close()


def resident_bytes(node: OdradekMember) -> int:
    status = pathlib.Path(f"/proc/{node.pid}/status").read_text()
    (line,) = [one for one in status.splitlines() if one.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def test_a_follower_that_is_slower_than_its_leader_leaves_the_isr_and_comes_back_when_the_load_falls(
    leader: OdradekMember, follower: OdradekMember, proxy: Proxy
) -> None:
    topic, asked = "slow", leader.bootstrap_servers
    create(asked, topic, [LEADER, FOLLOWER], min_insync_replicas="1")
    wait_for_isr(asked, topic, LEADER, FOLLOWER)
    side = Side("leader", asked)
    value = bytes(500_000)
    produce_all(side, topic, value)
    before = [resident_bytes(node) for node in (leader, follower)]
    proxy.answers.bytes_per_second = 400_000
    memory_max = [0, 0]

    def has_left() -> bool:
        assert produce(side, topic, value, acks=1) is ErrorCode.NONE
        for place, node in enumerate((leader, follower)):
            memory_max[place] = max(memory_max[place], resident_bytes(node))
        return bool(lines_with(leader, f"{topic}-0: asking for the ISR {LEADER}"))

    waits(has_left, "the follower has left the ISR")
    wait_for_isr(asked, topic, LEADER)
    for _ in range(60):
        assert has_left()
    assert len(log_of(leader.data_dir, topic)) - len(log_of(follower.data_dir, topic)) > 20_000_000
    proxy.answers.bytes_per_second = None
    wait_for_isr(asked, topic, LEADER, FOLLOWER)
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    # 30 MB were on their way.
    for place, node in enumerate((leader, follower)):
        grown = max(memory_max[place], resident_bytes(node)) - before[place]
        assert grown < 24_000_000, (node.node_id, grown)
    side.close()


@pytest.fixture(scope="module")
def cut_off(troubled_controllers: SharedControllers) -> Iterator[OdradekMember]:
    properties = {**QUICK, **troubled_controllers.behind_the_proxy}
    with OdradekMember(troubled_controllers, CUT_OFF, properties) as node:
        yield node


@pytest.mark.parametrize("which", ["requests", "answers"])
def test_a_leader_that_is_cut_off_from_the_controllers_in_one_direction_is_replaced_and_acknowledges_nothing(
    troubled_controllers: SharedControllers, cut_off: OdradekMember, witness: OdradekMember, which: str
) -> None:
    """Clients and the other node reach it all the time."""
    topic, asked = f"cut-off-{which}", witness.bootstrap_servers
    create(asked, topic, [CUT_OFF, WITNESS], min_insync_replicas="1")
    wait_for_isr(asked, topic, CUT_OFF, WITNESS)
    old = Side("the old leader", cut_off.bootstrap_servers)
    produce_all(old, topic, b"before")
    told = len(witness.log)
    direction: Direction = getattr(troubled_controllers.proxy, which)
    direction.cut()
    try:
        waits(lambda: leader_of(asked, topic) == WITNESS, "the other one leads")
        new = Side("the new leader", asked)
        produce_all(new, topic, b"new")
        assert lines_with(witness, f"broker {CUT_OFF} is fenced", since=told)
        # It believes that it leads. Nobody follows it: who wants to be sure waits in vain.
        code, _ = produced(old.ask(produce_request(topic, [b"by all"], -1, 1_000), PRODUCE_VERSION))
        assert code is ErrorCode.REQUEST_TIMED_OUT
        code, offset = produced(old.ask(produce_request(topic, [b"by one"], 1), PRODUCE_VERSION))
        assert (code, offset) == (ErrorCode.NONE, 2)
        assert values_read(old.ask(fetch_request(topic), FETCH_VERSION)) == [b"before"]
        wait_for_line(cut_off, "waiting for the controllers at")
    finally:
        direction.mend()
    wait_for_isr(asked, topic, CUT_OFF, WITNESS)
    wait_for_equal_logs(topic, cut_off.data_dir, witness.data_dir)
    wait_for_line(cut_off, f"{topic}-0: cut at 1, as its leader has it")
    assert values_at(new, topic) == [b"before", b"new"]
    for side in (old, new):
        side.close()
