"""A node whose number another live process has does not get in, says why, and gives up."""

from __future__ import annotations

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.sharing import SharedControllers
from compat_tests.quorum import OdradekMember


def test_a_duplicate_is_refused_in_one_sentence_and_gives_up_when_its_time_is_over(
    controllers: SharedControllers, odradek: OdradekMember
) -> None:
    number = odradek.node_id
    second = OdradekMember(controllers, number, {"initial.broker.registration.timeout.ms": "2000"})
    process = second.begin()
    assert process.wait(2 + DEADLINE_SECONDS) == 1
    told = second.log
    second.kill()
    assert told.count("the controllers do not register this node yet") == 1, told
    assert f"another process is registered as node {number}" in told
    assert "within 2000 ms (initial.broker.registration.timeout.ms)" in told
