"""Why a client library does not get in. To be late is not to be refused: a reason is looked for, which some
libraries tell only to their log.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from compat_tests.clients import wait_until

SECONDS = 30.0


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def log_of(library: str) -> Iterator[list[str]]:
    """Its warnings and errors, as they come."""
    kept, logger = _Kept(), logging.getLogger(library)
    logger.addHandler(kept)
    try:
        yield kept.lines
    finally:
        logger.removeHandler(kept)


def confluent_gets_in(settings: dict[str, Any], code: int | None, words: str = "") -> bool:
    """librdkafka tries for ever and tells of each failure; only one with this code, if any, and these words
    counts.
    """
    failures: list[confluent_kafka.KafkaError] = []
    admin = AdminClient({**settings, "error_cb": failures.append})
    answer = admin.describe_cluster(request_timeout=2 * SECONDS)

    def is_refused() -> bool:
        admin.poll(0.05)
        return any(code in (None, error.code()) and words in str(error) for error in failures)

    try:
        wait_until(lambda: is_refused() or answer.done(), "an answer or a reason", seconds=SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {failures}") from None
    if is_refused():
        return False
    assert answer.result().nodes
    return True
