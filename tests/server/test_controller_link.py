"""What the link to the controllers says of refusals."""

import logging

from odradek.server.controller_link import Refusals
from odradek.wire.errors import ErrorCode

DUPLICATE, STALE = ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.STALE_BROKER_EPOCH


def test_a_refusal_is_said_once_in_thirty_seconds_and_another_one_at_once(caplog):
    clock = [0]
    refusals = Refusals(7, lambda: clock[0])
    said = []
    for now_ms, error in (
        (0, DUPLICATE),
        (100, DUPLICATE),
        (29_900, DUPLICATE),
        (30_000, DUPLICATE),
        (30_100, STALE),
        (30_200, ErrorCode.NOT_CONTROLLER),
    ):
        clock[0] = now_ms
        with caplog.at_level(logging.WARNING):
            refusals.refused("no", error)
        said.append(len(caplog.messages))
    assert said == [1, 1, 1, 2, 3, 3]
    assert caplog.messages[0].startswith("no: another process is registered as node 7")
    assert caplog.messages[0].endswith("(DUPLICATE_BROKER_REGISTRATION)")
    assert "(STALE_BROKER_EPOCH)" in refusals.last


def test_after_an_answer_the_next_refusal_is_said_at_once(caplog):
    refusals = Refusals(7, lambda: 0)
    refusals.refused("no", DUPLICATE)
    refusals.ended()
    refusals.refused("no", DUPLICATE)
    assert len(caplog.messages) == 2
