"""Kafka Streams with `exactly_once_v2`: a word count counts no word twice, whoever is killed."""

from __future__ import annotations

import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kit import readers
from compat_tests.kit.transaction_brokers import Start
from compat_tests.streams.word_count import EXACTLY_ONCE, PARTITIONS, WORDS, Application
from tests.tiers import NIGHTLY

LINES = 40
ROUNDS = 4 if NIGHTLY else 2
"""The first begins with no state at all, the second with what a killed process has left."""


@pytest.fixture(params=[reference.CURRENT, reference.OLDER] if NIGHTLY else [reference.CURRENT])
def application(
    start_broker: Start, request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Application]:
    application = Application(start_broker(), request.param, tmp_path, EXACTLY_ONCE)
    yield application
    for run in application.runs:
        run.kill()


def committed_counts(application: Application) -> dict[str, list[int]]:
    """What read_committed sees in the output topic: word -> its counts in their order."""
    partitions = [(application.output, number) for number in range(PARTITIONS)]
    counts: dict[str, list[int]] = defaultdict(list)
    for there in readers.messages(application.broker.bootstrap, partitions).values():
        for message in there:
            counts[message.key().decode()].append(int(message.value()))
    return counts


def last(counts: dict[str, list[int]]) -> Counter[str]:
    return Counter({word: numbers[-1] for word, numbers in counts.items()})


def wait_until_counted(application: Application) -> None:
    wait_until(
        lambda: last(committed_counts(application)) == application.expected,
        "all words are counted",
        seconds=90,
    )


def test_no_word_is_counted_twice_when_the_application_and_the_broker_are_killed(
    application: Application,
) -> None:
    application.write(LINES)
    run = application.start("state")
    run.wait_until_running()
    wait_until_counted(application)
    for round_number in range(ROUNDS):
        # In the middle of its work; its transaction is open until its time-out.
        application.write(LINES)
        run.kill()
        application.write(LINES)
        # A new process goes on with the state that is there, or with none: then it reads the changelog.
        run = application.start("state" if round_number % 2 else f"empty-{round_number}")
        wait_until_counted(application)
        application.write(LINES)
        application.broker.crash_and_restart()
        application.write(LINES)
        wait_until_counted(application)
        assert {word: run.count(word) for word in WORDS} == application.expected
    counts = committed_counts(application)
    for word, numbers in counts.items():
        assert numbers == sorted(set(numbers)), f"{word} went back or was told twice: {numbers}"
    run.stop()
    partitions = [(application.output, number) for number in range(PARTITIONS)]
    assert readers.wait_until_stable(application.broker.bootstrap, partitions, 30), (
        "a transaction is still open"
    )
