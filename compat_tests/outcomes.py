"""What became of the tests of a suite of others, held against the strict list of what does not pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Outcome:
    what: str
    """passed, failed or skipped."""
    why: str
    """What was reported of a failure or of a skip."""


def complaints(found: dict[str, Outcome], what: str, known: dict[str, str]) -> list[str]:
    """Each test that is `what` and is not `known` to be, or the other way round, or for another reason."""
    wrong = []
    for test in sorted(known.keys() | {test for test, outcome in found.items() if outcome.what == what}):
        outcome = found.get(test, Outcome("not there", ""))
        if outcome.what != what:
            wrong.append(f"{test} is on the list as {what} and is {outcome.what}\n{outcome.why[-4000:]}")
        elif test not in known:
            wrong.append(f"{test} is {what} and not on the list\n{outcome.why[-4000:]}")
        elif known[test] not in outcome.why:
            wrong.append(f"{test} is {what}, but not by {known[test]!r}\n{outcome.why[-4000:]}")
    return wrong
