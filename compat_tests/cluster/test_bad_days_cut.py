"""The network fails in one direction only: between a follower and its leader, between a node and the
controllers; and a follower that gets less than the leader has to give."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.cluster.bad_days import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    QUICK,
    SHORT_SESSION,
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
from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.cluster.test_replication import create
from compat_tests.cutting_proxy import CuttingProxy, Direction
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from compat_tests.reference import free_port
from odradek.wire.errors import ErrorCode

LEADER, FOLLOWER, CUT_OFF = 1, 2, 3


class TwoListeners(Controllers):
    """A controller with a second listener, which is advertised at the port of a proxy: a node that comes
    there is sent there again."""

    def __init__(self) -> None:
        self.second_port = free_port()
        self.proxy = CuttingProxy(self.second_port)
        super().__init__(SHORT_SESSION)
        host, first, second = "127.0.0.1", self.port, self.second_port
        self._properties |= {
            "listeners": f"CONTROLLER://{host}:{first},CUT://{host}:{second}",
            "advertised.listeners": f"CONTROLLER://{host}:{first},CUT://{host}:{self.proxy.port}",
            "controller.listener.names": "CONTROLLER,CUT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CUT:PLAINTEXT",
        }

    @property
    def behind_the_proxy(self) -> dict[str, str]:
        """Of a node that reaches the controllers by the proxy alone."""
        return {
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.proxy.port}",
            "controller.listener.names": "CUT",
            "listener.security.protocol.map": "CUT:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }


@pytest.fixture(scope="module")
def controllers() -> Iterator[TwoListeners]:
    controllers = TwoListeners()
    with controllers.proxy, controllers:
        yield controllers


@pytest.fixture
def proxy(controllers: TwoListeners) -> Iterator[CuttingProxy]:
    """In front of the listener at which brokers fetch from the leader."""
    with CuttingProxy(free_port()) as started:
        yield started


@pytest.fixture
def leader(controllers: TwoListeners, proxy: CuttingProxy) -> Iterator[OdradekMember]:
    node = OdradekMember(controllers, LEADER, QUICK)
    host = "127.0.0.1"
    own = {
        "listeners": f"PLAINTEXT://{host}:{node.port},BROKERS://{host}:{proxy.target_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{node.port},BROKERS://{host}:{proxy.port}",
        **BROKERS,
    }
    with with_properties(node, own):
        yield node


BROKERS = {
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
}


@pytest.fixture
def follower(controllers: TwoListeners) -> Iterator[OdradekMember]:
    node = OdradekMember(controllers, FOLLOWER, QUICK)
    host, brokers = "127.0.0.1", free_port()
    own = {
        "listeners": f"PLAINTEXT://{host}:{node.port},BROKERS://{host}:{brokers}",
        "advertised.listeners": f"PLAINTEXT://{host}:{node.port},BROKERS://{host}:{brokers}",
        **BROKERS,
    }
    with with_properties(node, own):
        yield node


def with_properties(node: OdradekMember, properties: dict[str, str]) -> OdradekMember:
    """Later lines count."""
    path = node.directory / "server.properties"
    lines = "".join(f"{name}={value}\n" for name, value in properties.items())
    path.write_text(f"{path.read_text()}\n{lines}")
    return node


@pytest.mark.parametrize("which", ["requests", "answers"])
def test_a_follower_that_is_cut_off_in_one_direction_leaves_the_isr_and_comes_back(
    leader: OdradekMember, follower: OdradekMember, proxy: CuttingProxy, which: str
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
    leader: OdradekMember, follower: OdradekMember, proxy: CuttingProxy
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
    leader: OdradekMember, follower: OdradekMember, proxy: CuttingProxy
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


@pytest.fixture
def cut_off(controllers: TwoListeners) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, CUT_OFF, {**QUICK, **controllers.behind_the_proxy}) as node:
        yield node


@pytest.fixture
def other(controllers: TwoListeners) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, FOLLOWER, QUICK) as started:
        yield started


@pytest.mark.parametrize("which", ["requests", "answers"])
def test_a_leader_that_is_cut_off_from_the_controllers_in_one_direction_is_replaced_and_acknowledges_nothing(
    controllers: TwoListeners, cut_off: OdradekMember, other: OdradekMember, which: str
) -> None:
    """Clients and the other node reach it all the time."""
    topic, asked = f"cut-off-{which}", other.bootstrap_servers
    create(asked, topic, [CUT_OFF, FOLLOWER], min_insync_replicas="1")
    wait_for_isr(asked, topic, CUT_OFF, FOLLOWER)
    old = Side("the old leader", cut_off.bootstrap_servers)
    produce_all(old, topic, b"before")
    direction: Direction = getattr(controllers.proxy, which)
    direction.cut()
    try:
        waits(lambda: leader_of(asked, topic) == FOLLOWER, "the other one leads")
        new = Side("the new leader", asked)
        produce_all(new, topic, b"new")
        assert lines_with(other, f"broker {CUT_OFF} is fenced")
        # It believes that it leads. Nobody follows it: who wants to be sure waits in vain.
        code, _ = produced(old.ask(produce_request(topic, [b"by all"], -1, 1_000), PRODUCE_VERSION))
        assert code is ErrorCode.REQUEST_TIMED_OUT
        code, offset = produced(old.ask(produce_request(topic, [b"by one"], 1), PRODUCE_VERSION))
        assert (code, offset) == (ErrorCode.NONE, 2)
        assert values_read(old.ask(fetch_request(topic), FETCH_VERSION)) == [b"before"]
        wait_for_line(cut_off, "waiting for the controllers at")
    finally:
        direction.mend()
    wait_for_isr(asked, topic, CUT_OFF, FOLLOWER)
    wait_for_equal_logs(topic, cut_off.data_dir, other.data_dir)
    wait_for_line(cut_off, f"{topic}-0: cut at 1, as its leader has it")
    assert values_at(new, topic) == [b"before", b"new"]
    for side in (old, new):
        side.close()
