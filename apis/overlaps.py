"""Requests of one connection that may be under way at the same time.

Promise: each answer is the same as if the client had waited for the previous answer. Kafka keeps it by
handling one request of a connection at a time: it reads the next request after it has sent the answer, also
after a long poll or a join, and after Produce with acks=0. Odradek does the same, with the exceptions in this
table: pairs where no client can see a difference, and which save time because they share one commit or one
flush. All others wait (`server/_pipeline.pyx` has the gate).

Source: Kafka's protocol guide, SocketServer of Kafka 4.3 (a channel is muted until its answer is sent).
"""

from __future__ import annotations

PRODUCE, OFFSET_COMMIT = 0, 8

MAY_OVERLAP: dict[tuple[int, int], str] = {
    (PRODUCE, PRODUCE): (
        "Offsets, sequence numbers and duplicates are decided when a request is staged, in the order of the "
        "requests, and what is staged for a partition is committed together. Producers have five of them "
        "under way. (One that waits for its coordinator holds back all others, and so does one with acks=0 "
        "that waits for its preparation: its refusal would close the connection.)"
    ),
    (OFFSET_COMMIT, OFFSET_COMMIT): (
        "The coordinator decides in the order of the requests, by a state that has the effects of those "
        "before; their records are appended in that order and committed together."
    ),
}
"""(API key of a request that is not answered yet, API key of the next one) -> why it may begin."""

NONE: frozenset[int] = frozenset()


def overlaps_of(api_key: int) -> frozenset[int]:
    """The API keys of requests that may begin while one of `api_key` is not answered."""
    return frozenset(later for earlier, later in MAY_OVERLAP if earlier == api_key)
