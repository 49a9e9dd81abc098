"""Dead letter queues of share groups whose members are share consumers of Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests import reference
from compat_tests.clients import DEADLINE_SECONDS, Record, wait_until
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.kit.programs import Program
from compat_tests.share_groups.brokers import new_topic, set_up_group, wait_until_done
from compat_tests.share_groups.members import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    program_of,
)
from compat_tests.stories import topic_name

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
DELIVERIES_MAX = 2
ENABLE = "errors.deadletterqueue.group.enable"
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


@pytest.fixture(scope="module")
def program(bootstrap: str) -> Iterator[Program]:
    program = program_of(reference.CURRENT, bootstrap)
    yield program
    program.close()


def new_queue(bootstrap: str) -> str:
    queue = topic_name("dlq.letters")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(queue, 1, 1, config={ENABLE: "true"})])[queue].result(DEADLINE_SECONDS)
    wait_until(lambda: queue in admin.list_topics(timeout=DEADLINE_SECONDS).topics, "the queue is there")
    return queue


def headers_of(letter: Record) -> dict[str, bytes]:
    return {name.removeprefix("__dlq.errors."): content or b"" for name, content in letter.headers}


@pytest.mark.parametrize("copies", ["true", "false"])
def test_rejected_records_and_those_that_came_too_often_are_dead_letters(
    bootstrap: str, program: Program, copies: str
) -> None:
    queue, topic = new_queue(bootstrap), new_topic(bootstrap, 9)
    settings = {NAME: queue, COPY: copies, "share.delivery.count.limit": f"{DELIVERIES_MAX}"}
    group = set_up_group(bootstrap, settings)
    member = ShareMember(program, group, topic, settings=EXPLICIT)
    got = member.poll_until(9)
    member.acknowledge_each(zip(got, [ACCEPT, RELEASE, REJECT] * 3, strict=True))
    assert member.commit() == {(topic, 0): None}
    again = member.poll_until(3)
    assert [(one.where.offset, one.count) for one in again] == [(1, 2), (4, 2), (7, 2)]
    member.acknowledge(again, RELEASE)
    assert member.commit() == {(topic, 0): None}
    letters = ConfluentClient(bootstrap).read(queue, {0: 0}, 6)
    found = {int(headers_of(one)["offset"]): one for one in letters}
    assert sorted(found) == [1, 2, 4, 5, 7, 8]
    for offset, letter in found.items():
        assert letter.value == (b"%d" % offset if copies == "true" else None)
        told = headers_of(letter)
        assert (told["topic"], told["partition"], told["group"]) == (topic.encode(), b"0", group.encode())
        is_rejected = offset % 3 == 2
        assert told["delivery.count"] == (b"1" if is_rejected else b"2")
        assert told["message"] == (
            b"Offset rejected by client." if is_rejected else b"Offset delivery count exceeded the threshold."
        )
    assert member.poll() == []
    member.close()
    wait_until_done(bootstrap, group, topic)
