"""One case: a client does its operation while a fault is there, and then the broker is asked."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from compat_tests.test_kit.clients import GROUP_OPERATIONS, Failed, Patience, StoryClient
from compat_tests.test_kit.operations import OPERATIONS
from compat_tests.test_kit.stories import (
    ACTIONS,
    AGAIN,
    CUT,
    FINAL,
    LOST,
    OK,
    STORIES,
    expected,
    final_error_of,
)
from odradek import Broker
from odradek.server.test_kit.kit import TestKitError
from tests.server.clocked import Client

PATIENT = Patience()
HASTY = Patience(request_ms=5_000, api_ms=20_000)
BRIEF = Patience(request_ms=5_000, api_ms=10_000)
"""For clients that try until their time is over."""
ENDS_OF_PATIENCE = ("TimeoutError", "TimeoutException", "KafkaTimeoutError")


class Case(NamedTuple):
    """An operation of a client whose requests of one API have a fault."""

    client: str
    api: str
    action: str


@dataclass(frozen=True)
class Told:
    """Outcome of a case."""

    outcome: str
    text: str
    found: list[str]
    fired: int
    has_happened: bool | None
    """None: the operation only reads."""


def patience_for(case: Case) -> Patience:
    if expected(case.client, case.api, case.action) in ENDS_OF_PATIENCE:
        return BRIEF
    return HASTY if ACTIONS[case.action].is_hasty else PATIENT


def play(case: Case, library: StoryClient, broker: Broker) -> Told:
    story, action = STORIES[case.api], ACTIONS[case.action]
    operation = OPERATIONS[story.operation]
    name = f"{case.client}-{case.api}-{case.action}-{uuid.uuid4().hex[:8]}"
    with contextlib.closing(Client(broker.port)) as asking:
        operation.before(asking, name)
        arguments = dict(action.arguments)
        if "error" in arguments:
            final = final_error_of(case.client, case.api)
            arguments["error"] = {AGAIN: story.again, FINAL: final}[str(arguments["error"])]
            if story.by_topic:
                arguments["topic"] = name
        with broker.faults.add(case.api, client_id=name, times=action.times, **arguments) as fault:  # type: ignore[arg-type]

            def hold() -> None:
                # A final error ends the operation, which is not released, unless nobody hears of the error.
                with contextlib.suppress(TestKitError):
                    if action.times is None:
                        fault.wait(NEVER, FINAL_SECONDS)
                    else:
                        fault.wait(action.times, HOLD_SECONDS)

            holds = story.operation in GROUP_OPERATIONS and case.api in HELD
            try:
                found = library.run(
                    broker.bootstrap_servers,
                    story.operation,
                    name,
                    patience_for(case),
                    hold if holds else None,
                )
            except Failed as failure:
                outcome, text, found = failure.name, str(failure), []
            else:
                outcome, text = OK, ""
            fired = fault.fired
        happened = None if operation.state is None else operation.has_happened(asking, name)
        return Told(outcome, text, found, fired, happened)


HELD = ("Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat")
"""APIs whose requests go on as long as one is a member."""
HOLD_SECONDS = 60.0
FINAL_SECONDS = 5.0
NEVER = 1 << 30
"""More often than a fault can fire."""
NOT_TRIED_AGAIN = ("LeaveGroup",)
"""Errors of these requests matter to nobody."""


def check(case: Case, told: Told) -> None:
    """AssertionError: something else came of it than `stories` says."""
    action, operation = ACTIONS[case.action], OPERATIONS[STORIES[case.api].operation]
    assert told.outcome == expected(case.client, case.api, case.action), told
    most = told.fired if action.times is None else action.times
    least = most if told.outcome == OK and case.api not in NOT_TRIED_AGAIN else 1
    assert told.fired >= 1, told
    assert least <= told.fired <= most, told
    if told.outcome == OK and operation.found is not None:
        assert [value.lower() for value in told.found] == operation.found, told
    if told.has_happened is not None:
        has_effect = told.outcome == OK or case.action in (LOST, CUT)
        assert told.has_happened is has_effect, told
