"""Who was the controller and does not know that another one is writes nothing; a real ZooKeeper says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.exceptions import BadVersionError

from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking
from compat_tests.zookeeper.ensemble import ZooKeeper
from odradek.coordinator.zookeeper.projection import Step
from odradek.server.zookeeper.controllership import Controllership, NotController, elect, remove, write
from odradek.server.zookeeper.secured import Secured
from odradek.server.zookeeper.session import Session

TIMEOUT_S = 4.0
NOW_MS = 1_700_000_000_000


class Candidate:
    def __init__(self, address: str, node_id: int) -> None:
        self.session = Session(address, TIMEOUT_S, Secured(None, None, False))
        self.session.open(30)
        self._node_id = node_id
        self.seen: list[object] = []
        """Events of `/controller`."""

    def elect(self) -> Controllership | None:
        return elect(self.session, self._node_id, lambda: NOW_MS, self.seen.append)


@pytest.fixture
def address(server: ZooKeeper) -> str:
    return f"{server.address}/{topic_name('writes')}"


@pytest.fixture
def candidates(address: str) -> Iterator[list[Candidate]]:
    found = [Candidate(address, node_id) for node_id in (1, 2)]
    yield found
    for one in found:
        one.session.close()


def test_one_of_two_is_the_controller(candidates: list[Candidate], looking: Looking) -> None:
    first, second = candidates
    won = first.elect()
    assert won is not None
    assert won.epoch == 1
    assert second.elect() is None
    assert looking.json("/controller")["brokerid"] == 1
    assert first.elect() == won, "who has won, and does not know it, learns it"
    assert looking.read("/controller_epoch") == b"1"


def test_who_is_no_controller_any_more_writes_nothing(candidates: list[Candidate], looking: Looking) -> None:
    first, second = candidates
    old = first.elect()
    assert old is not None
    topics = [Step("/brokers", b"", is_new=True), Step("/brokers/topics", b"", is_new=True)]
    assert write(first.session, old, topics) == 2
    first.session.client.delete("/controller")
    new = second.elect()
    assert new is not None
    assert (old.epoch, new.epoch) == (1, 2)
    write(second.session, new, [Step("/brokers/topics/t", b"of the new one", is_new=True)])
    for step in (
        Step("/brokers/topics/late", b"", is_new=True),
        Step("/brokers/topics/t", b"of the old one"),
        Step("/brokers/topics/t", None),
    ):
        with pytest.raises(NotController, match=BadVersionError.__name__):
            write(first.session, old, [step])
    with pytest.raises(NotController, match=BadVersionError.__name__):
        remove(first.session, old, "/brokers/topics/t")
    assert looking.children("/brokers/topics") == ["t"]
    assert looking.read("/brokers/topics/t") == b"of the new one"


def test_many_steps_are_some_transactions(candidates: list[Candidate], looking: Looking) -> None:
    """ZooKeeper takes no request of more than a megabyte."""
    controllership = candidates[0].elect()
    assert controllership is not None
    large = [Step(f"/large-{number}", b"x" * 300_000, is_new=True) for number in range(5)]
    small = [Step(f"/small-{number}", b"", is_new=True) for number in range(1_000)]
    assert write(candidates[0].session, controllership, [*large, *small]) == 1_005
    assert len(looking.children("/")) == 1_005 + len(("controller", "controller_epoch"))
