"""Request frames for `load.c`: built once with `odradek.wire`, replayed by the C client."""

from __future__ import annotations

import pathlib
import random
import struct
import time
from dataclasses import dataclass

from odradek.wire.frames import request_frame
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

CLIENT_ID = "benchmark"
TIMESTAMP_MS = int(time.time() * 1000)
"""Of every record: an old one would fall to retention while it is being read."""


@dataclass(frozen=True)
class Frame:
    """One request as bytes, with what the C client has to know of it."""

    data: bytes
    batch_position: int = -1
    error_position: int = -1
    """Of the int16 error code, counted from the byte after the answer's length field."""
    slot: int = 0


def write_frames(path: pathlib.Path, frames: list[Frame]) -> None:
    """Writes the file that `load -f` reads (layout: the head of load.c)."""
    with path.open("wb") as file:
        file.write(struct.pack("<I", len(frames)))
        for frame in frames:
            file.write(
                struct.pack("<IiiI", len(frame.data), frame.batch_position, frame.error_position, frame.slot)
            )
            file.write(frame.data)


def batch_of(record_count: int, record_bytes: int) -> bytes:
    """A v2 batch with `record_count` records whose values have `record_bytes` random bytes each."""
    source = random.Random(record_count * 31 + record_bytes)
    value = source.randbytes(record_bytes)
    return bytes(build_batch([Record(i, TIMESTAMP_MS, None, value) for i in range(record_count)]))


def produce_frame(
    topic: str, topic_id: bytes, partition: int, batch: bytes, *, version: int = 9, slot: int = 0
) -> Frame:
    """Produce to one partition with acks=all."""
    by_id = version >= 13
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="" if by_id else topic,
                topic_id=topic_id if by_id else bytes(16),
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
    data = request_frame(request, version, 0, CLIENT_ID)
    name_bytes = 16 if by_id else 1 + len(topic.encode())
    # correlation id 4, header tags 1, topic count 1, name, partition count 1, partition index 4
    return Frame(data, data.index(batch), 4 + 1 + 1 + name_bytes + 1 + 4, slot)


def fetch_frame(topic: str, partition: int, offset: int, *, max_bytes: int, partitions: int = 1) -> Frame:
    """Fetch version 11 (no session) from one partition, or as much from each of some that follow it."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=partitions * max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
                    for index in range(partition, partition + partitions)
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    # correlation id 4, throttle 4, error code 2, session 4, topics 4, name 2 + n, partitions 4, index 4
    return Frame(request_frame(request, 11, 0, CLIENT_ID), -1, 28 + len(topic.encode()), 0)


def list_offsets_frame(topic: str, partition: int) -> Frame:
    """ListOffsets version 5, latest offset of one partition, as Spark's connector asks."""
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)]
            )
        ],
    )
    # correlation id 4, throttle 4, topic count 4, name 2 + n, partition count 4, index 4
    return Frame(request_frame(request, 5, 0, CLIENT_ID), -1, 18 + len(topic.encode()) + 4, 0)
