"""Compressed records in other forms than one stream: bytes behind the end, several members or frames, empty
ones. Kafka's consumers and cleaner read what its broker takes.
"""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.test_deletes import offsets
from compat_tests.differential.test_records import NOTHING_CONVERTED, batch, fetch, produce
from compat_tests.differential.test_settings import is_older
from compat_tests.differential.topics import NOW_MS, new_topic
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.records import build_batch
from tests.kit.compressed_forms import CODECS, HEADER_BYTES, UNREADABLE, forms, with_section

TOPIC, MAX_TIMESTAMP = 2, -3
"""A type of resource, and the time for which ListOffsets gives the latest one."""


def whether_taken(side: Side, answer: Any) -> None:
    """For data that are damaged Kafka has UNKNOWN_SERVER_ERROR, and ours CORRUPT_MESSAGE."""
    for partition in answer.responses[0].partition_responses:
        if partition.error_code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE):
            partition.error_code, partition.log_start_offset = ErrorCode.CORRUPT_MESSAGE, -1
        partition.error_message = None


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("topic_codec", ["producer", "uncompressed"])
def test_each_form_is_taken_and_read_alike(pair: Pair, codec: Compression, topic_codec: str) -> None:
    """Kafka decompresses what it checks; where the topic has another codec, it writes what it has read."""
    topic = new_topic(pair, "forms", compression_type=topic_codec)
    plain = batch(5)
    version = max(pair.versions(ProduceRequest))
    with pair.collecting():
        for name, section in forms(codec, plain[HEADER_BYTES:]):
            records = with_section(plain, codec, section)
            answers = pair.ask(
                lambda side, records=records: produce(side, topic, records), version, name, see=whether_taken
            )
            for side, answer in zip(("Kafka", "Odradek"), answers, strict=True):
                code = answer.responses[0].partition_responses[0].error_code
                if (code == ErrorCode.NONE) == (name in UNREADABLE[codec]):
                    pair.fail([f"{name}: {side} answers {code}"])
        pair.ask(lambda side: fetch(side, topic), NOTHING_CONVERTED, "all of it")


@pytest.mark.parametrize("codec", [Compression.NONE, *CODECS], ids=lambda codec: codec.name.lower())
def test_a_record_has_a_size_when_it_is_decompressed(pair: Pair, codec: Compression) -> None:
    if is_older(pair):
        pytest.skip("Kafka 3.9 has no max.decompressed.message.bytes")
    topic = new_topic(pair, "limited", max_decompressed_message_bytes="10000")
    version = max(pair.versions(ProduceRequest))
    for size in (9_990, 9_992, 9_993, 10_000, 20_000):
        records = bytes(build_batch([(0, NOW_MS, None, bytes(size))], compression=codec))
        pair.ask(lambda side, records=records: produce(side, topic, records), version, f"{size} bytes")
    lowered = AlterableConfig(name="max.decompressed.message.bytes", config_operation=0, value="100")
    for side in pair.sides:
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[lowered])
        answer = side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
    for timestamp in (NOW_MS, NOW_MS + 1, MAX_TIMESTAMP):
        pair.ask(
            lambda _, timestamp=timestamp: offsets(topic, timestamp),
            max(pair.versions(ListOffsetsRequest)),
            f"after the limit was lowered, {timestamp}",
            settle=(lambda answer: answer.topics[0].partitions[0].error_code != 0)
            if codec and timestamp != NOW_MS + 1
            else None,
        )
