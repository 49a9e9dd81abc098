"""One record, written with acks=all and read again, to see that a client can."""

import contextlib
import secrets
import time

from odradek.client.admin.topics import create_topic, delete_topics, describe_topics
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import LATEST, Cluster, leader_of
from odradek.client.fetching import Fetcher
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch, iter_records, iter_whole_batches

_ACKS_ALL = -1
_VERSION_MAX = 12
"""Highest usable version of Produce: later ones name topics by id."""


def write_and_read(cluster: Cluster, topic: str | None) -> tuple[str, float]:
    """Writes a record to `topic`, or to a new topic that is deleted again, and reads it.

    Returns what was seen, and by how many seconds the broker's clock is ahead (0 with a given topic, whose
    timestamps may be those of clients). ClientError if something fails.
    """
    if topic is not None:
        written_ms, read_ms, _, _ = _round_trip(cluster, topic)
        return f"written in {written_ms:.0f} ms, read in {read_ms:.0f} ms; the record stays in {topic}", 0.0
    name = f"odradek-doctor-{secrets.token_hex(4)}"
    create_topic(cluster, name, 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"})
    try:
        written_ms, read_ms, clock_s, replicas = _round_trip(cluster, name)
    finally:
        with contextlib.suppress(ClientError):
            delete_topics(cluster, [name])
    copies = f"{replicas} replica{'s' if replicas != 1 else ''}"
    return f"written in {written_ms:.0f} ms ({copies}), read in {read_ms:.0f} ms, deleted", clock_s


def _round_trip(cluster: Cluster, topic: str) -> tuple[float, float, float, int]:
    """Milliseconds of the write and of the read, seconds of the clocks' difference, number of replicas."""
    value = secrets.token_bytes(16)
    began, before_s = time.monotonic(), time.time()
    offset = _write(cluster, topic, value)
    written, after_s = time.monotonic(), time.time()
    appended_ms = _read(cluster, topic, offset, value)
    read = time.monotonic()
    # The broker has set its time between the two of ours.
    appended_s = appended_ms / 1000
    clock_s = min(0.0, appended_s - before_s) or max(0.0, appended_s - after_s)
    (described,), _ = describe_topics(cluster, [topic])
    return (written - began) * 1000, (read - written) * 1000, clock_s, described.replication_factor


def _write(cluster: Cluster, topic: str, value: bytes) -> int:
    batch = build_batch([(0, time.time_ns() // 1_000_000, b"odradek-doctor", value, ())])
    data = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        acks=_ACKS_ALL,
        timeout_ms=min(cluster.settings.request_timeout_ms, cluster.settings.patience_ms),
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    response = cluster.ask(leader_of(topic, 0), request, version_max=_VERSION_MAX)
    (one,) = response.responses[0].partition_responses
    if one.error_code != ErrorCode.NONE:
        raise refusal(f"writing to topic {topic}", error_of(one.error_code), one.error_message)
    return int(one.base_offset)


def _read(cluster: Cluster, topic: str, offset: int, value: bytes) -> int:
    """The timestamp of the record."""
    cluster.list_offsets({(topic, 0): LATEST})
    for fetched in Fetcher(cluster, topic, 0, offset, offset + 1, read_committed=False):
        for position, header in iter_whole_batches(fetched.buffer):
            for record in iter_records(fetched.buffer[position:], header):
                if record.offset == offset and record.value == value:
                    # With LogAppendTime the header alone has the time.
                    return header.max_timestamp
    raise ClientError(f"the record that was written to topic {topic} is not what is read at its offset")
