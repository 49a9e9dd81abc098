"""What the hot messages cost to decode and encode, in microseconds: best of several rounds.

PYTHONPATH=build/links python benchmarks/codec.py
"""

import timeit

from odradek.wire.codec import decoder, encode_message, encoder
from odradek.wire.frames import response_parts
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ROUNDS = 40


def microseconds(call, *arguments, repeat: int) -> float:
    timer = timeit.Timer(lambda: call(*arguments))
    empty = timeit.Timer(lambda: None)
    overhead = min(empty.repeat(ROUNDS, repeat))
    return (min(timer.repeat(ROUNDS, repeat)) - overhead) / repeat * 1e6


def produce_request() -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=bytes(170))
    return ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="orders", partition_data=[partition])]
    )


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, base_offset=12345678, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


def fetch_request(partitions: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=index * 1000, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=wanted)])


def main() -> None:
    produce = memoryview(encode_message(produce_request(), 9))
    fetch = memoryview(encode_message(fetch_request(100), 12))
    answer = produce_response()
    encode = encoder(ProduceResponse, 9)
    rows = [
        (
            "Produce request v9, one batch, decode",
            microseconds(decoder(ProduceRequest, 9), produce, 0, repeat=2000),
        ),
        ("Produce response v9, encode", microseconds(lambda: encode(answer, []), repeat=2000)),
        ("  the same as a whole frame", microseconds(response_parts, answer, 9, 1, repeat=2000)),
        (
            "Fetch request v12, 100 partitions, decode",
            microseconds(decoder(FetchRequest, 12), fetch, 0, repeat=100),
        ),
    ]
    for name, cost in rows:
        print(f"{name:44} {cost:8.2f} us")


if __name__ == "__main__":
    main()
