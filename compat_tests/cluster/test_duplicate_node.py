"""A node whose number another live process has does not get in, says why, and gives up."""

from __future__ import annotations

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.quorum import Controllers, OdradekMember


def test_a_duplicate_is_refused_in_one_sentence_and_gives_up_when_its_time_is_over(
    controllers: Controllers,
) -> None:
    with OdradekMember(controllers, 41):
        second = OdradekMember(controllers, 41, {"initial.broker.registration.timeout.ms": "4000"})
        process = second.begin()
        assert process.wait(4 + DEADLINE_SECONDS) == 1
        told = second.log
        second.kill()
    assert told.count("the controllers do not register this node yet") == 1, told
    assert "another process is registered as node 41" in told
    assert "within 4000 ms (initial.broker.registration.timeout.ms)" in told
