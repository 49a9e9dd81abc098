"""Kafka Streams, of 4.3 and of 3.9: a word count with internal topics outlives restarts of both sides."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.brokers import TestBroker
from compat_tests.streams.word_count import WORDS, Application


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def application(
    broker: TestBroker, request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Application]:
    application = Application(broker, request.param, tmp_path)
    yield application
    for run in application.runs:
        run.stop()


def test_a_word_count_goes_on_after_restarts_of_the_application_and_of_the_broker(
    application: Application,
) -> None:
    application.write(60)
    run = application.start("state")
    run.wait_until_running()
    application.wait_until_counted()
    assert {word: run.count(word) for word in WORDS} == application.expected

    # The broker goes and comes back under the running application.
    application.broker.crash_and_restart()
    application.write(60)
    application.wait_until_counted()
    run.stop()

    # The application goes on with the state that it left behind,
    application.write(60)
    run = application.start("state")
    application.wait_until_counted()
    run.stop()

    # and with none: the store comes back from its changelog.
    run = application.start("empty")
    application.write(60)
    application.wait_until_counted()
    assert {word: run.count(word) for word in WORDS} == application.expected
    run.stop()
    assert application.counted() == dict(application.expected)

    topics = application.internal_topics()
    assert topics[f"{application.id}-counts-changelog"] == "compact"
    assert topics[f"{application.id}-words-repartition"] == "delete"
