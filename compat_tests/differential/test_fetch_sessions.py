"""Fetch sessions and waiting fetches over topics that are deleted, and made again under the same name."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.test_records import batch, produce
from compat_tests.differential.topics import id_of, metadata_of, new_topic, wait_until_readable
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from odradek.wire.messages.produce import ProduceRequest

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_IDS = 13
DELETING = 5
WAIT_MS = 30_000
"""Long enough for a deletion on a machine with much to do; the deletion ends the wait."""
NOBODYS_ID = bytes([7]) * 16

Asked = tuple[str, bytes, Sequence[int]]
"""Name and id of a topic, and some of its partitions."""


class Known(NamedTuple):
    """A topic under the id that it had at the time."""

    name: str
    ids: dict[str, bytes]

    def of(self, side: Side, *partitions: int) -> Asked:
        return self.name, self.ids[side.name], partitions


def known(pair: Pair, name: str) -> Known:
    return Known(name, {side.name: id_of(side, name) for side in pair.sides})


def fetch(asked: Sequence[Asked], *, offset: int = 0, **more: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=more.pop("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for index in partitions
                ],
            )
            for name, topic_id, partitions in asked
        ],
        **more,
    )


def delete(pair: Pair, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    pair.ask(lambda _: request, DELETING)
    pair.ask(
        lambda _: metadata_of(name),
        9,
        settle=lambda answer: answer.topics[0].error_code == 3,
        see=lambda side, answer: side.remember("cluster id", answer.cluster_id),
    )


def make_again(pair: Pair, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)

    def remember(side: Side, answer: Any) -> None:
        side.remember("cluster id", answer.cluster_id)
        side.remember(f"id of {name}", answer.topics[0].topic_id)

    for side in pair.sides:
        assert side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 2).topics[0].error_code == 0
        wait_until_readable(side, name, partitions)
    pair.ask(
        lambda _: metadata_of(name),
        12,
        settle=lambda answer: all(one.leader_id >= 0 for one in answer.topics[0].partitions),
        see=remember,
    )
    # Kafka's metadata names a leader a little before that one has opened its log.
    records = batch(1)
    version = pair.versions(ProduceRequest)[-1]
    pair.ask(
        lambda side: produce(side, name, records),
        version,
        settle=lambda answer: answer.responses[0].partition_responses[0].error_code == 0,
    )


def test_a_session_goes_on_over_a_topic_that_is_deleted_and_made_again(pair: Pair) -> None:
    for version in pair.versions(FetchRequest):
        if version < FIRST_VERSION_WITH_SESSIONS:
            continue
        name, other = new_topic(pair, "again", 2), new_topic(pair, "stays")
        first, stays = known(pair, name), known(pair, other)
        epochs = itertools.count(1)

        def opened(side: Side, answer: Any) -> None:
            side.remember("session", answer.session_id, "session_id")

        def ask(note: str, *topics: tuple[Known, Sequence[int]], offset: int = 0, **more: Any) -> None:
            epoch = next(epochs)
            pair.ask(
                lambda side: fetch(
                    [topic.of(side, *partitions) for topic, partitions in topics],
                    offset=offset,
                    session_id=side["session"],
                    session_epoch=epoch,
                    forgotten_topics_data=[
                        ForgottenTopic(topic=gone.name, topic_id=gone.ids[side.name], partitions=[0, 1])
                        for gone in more.get("forget", ())
                    ],
                ),
                version,
                note,
            )

        nobodys = Known("not-there", dict.fromkeys(("kafka", "odradek"), NOBODYS_ID))
        pair.ask(
            lambda side: fetch([first.of(side, 0, 1), stays.of(side, 0), nobodys.of(side, 0)]),
            version,
            "opened",
            see=opened,
        )
        ask("while it is there")
        delete(pair, name)
        ask("deleted")
        ask("still deleted")
        ask("deleted, and asked for once more", (first, [1]), offset=1)
        ask("deleted, and a partition that never was", (first, [2]))
        make_again(pair, name)
        second = known(pair, name)
        ask("made again, with one partition")
        ask("made again, and nothing new")
        ask("made again, the old id asked for once more", (first, [0]), offset=1)
        ask("made again, and the new id asked for, too", (second, [0]))
        ask("made again, both ids")
        delete(pair, name)
        ask("deleted once more")
        make_again(pair, name, 2)
        ask("made for the third time")
        ask("the first is forgotten", forget=[first])
        ask("all of that name are forgotten", forget=[second, nobodys])
        for note, topic in [("first", first), ("second", second), ("third", known(pair, name))]:
            pair.ask(
                lambda side: fetch([topic.of(side, 0, 1)], session_epoch=-1),
                version,
                f"{note} id, no session",
            )


def test_a_deletion_ends_a_fetch_that_waits(pair: Pair) -> None:
    for version in pair.versions(FetchRequest):
        for has_session in (False, True) if version >= FIRST_VERSION_WITH_SESSIONS else (False,):
            topic = known(pair, new_topic(pair, "waits"))
            stays = known(pair, new_topic(pair, "stays"))
            more = {"session_epoch": 0 if has_session else -1}
            for side in pair.sides:
                asked = [topic.of(side, 0), stays.of(side, 0)]
                side.request(fetch(asked, max_wait_ms=WAIT_MS, **more), version, "waiting")
                # The broker has read it when it answers this.
                side.ask(metadata_of(topic.name), 9)
            # The fetch waits before this is answered: it takes Kafka's controller a while.
            delete(pair, topic.name)
            answers = [
                side.answer(FetchRequest, version, "waiting", seconds=2 * WAIT_MS / 1000)
                for side in pair.sides
            ]
            for side, answer in zip(pair.sides, answers, strict=True):
                if has_session:
                    side.remember("session", answer.session_id, "session_id")
            plain = [side.plain(answer, version) for side, answer in zip(pair.sides, answers, strict=True)]
            pair.compare(f"Fetch v{version} (over a deletion, session {has_session})", *plain)
            if has_session:
                pair.ask(
                    lambda side: fetch([], session_id=side["session"], session_epoch=1),
                    version,
                    "after the deletion",
                )
