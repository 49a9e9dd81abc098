"""What users write to fill a topic: names and syntax of Spark's Kafka sink, and a sentence for all else."""

import pickle

import pytest

from odradek.spark.options import OptionError
from odradek.spark.write_options import WriteOptions, write_options
from odradek.wire.compression import Compression

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def taken(is_stream=False, **options):
    named = {name.replace("__", "."): value for name, value in options.items()}
    return write_options({**SERVERS, **named}, is_stream=is_stream)


def test_what_is_left_out_has_its_default():
    options = taken()
    assert options == WriteOptions(options.settings)
    assert options.settings.patience_ms == 120_000
    assert (options.topic, options.write_id, options.compression) == (None, None, Compression.NONE)


def test_what_is_given_is_taken_in_any_case():
    options = taken(
        TOPIC="orders",
        writeID="monday",
        markersTopic="marks",
        kafka__compression__TYPE="ZSTD",
        kafka__compression__zstd__level="7",
        kafka__compression__gzip__level="9",
        kafka__batch__size="1000",
        kafka__buffer__memory="2000000",
        kafka__transaction__timeout__ms="5000",
        kafka__delivery__timeout__ms="7000",
        kafka__request__timeout__ms="8000",
        kafka__acks="-1",
        kafka__enable__idempotence="true",
    )
    assert (options.topic, options.write_id, options.markers_topic) == ("orders", "monday", "marks")
    assert (options.compression, options.level) == (Compression.ZSTD, 7)
    assert (options.batch_bytes, options.memory_bytes) == (1000, 2_000_000)
    assert options.transaction_timeout_ms == 5000
    assert (options.settings.patience_ms, options.settings.request_timeout_ms) == (7000, 8000)
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_spark_hands_to_every_stream_is_left_alone():
    assert taken(is_stream=True, checkpointLocation="/c", queryName="q") == taken(is_stream=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka__acks": "1"}, "kafka.acks must be all or -1, and is '1'"),
        ({"kafka__enable__idempotence": "false"}, "kafka.enable.idempotence must be true"),
        ({"kafka__transactional__id": "t"}, "one for every task of a query; remove it (a batch: writeId)"),
        (
            {"kafka__compression__type": "brotli"},
            "kafka.compression.type must be none or gzip or snappy or lz4",
        ),
        ({"kafka__compression__zstd__level": "23"}, "kafka.compression.zstd.level must be a whole number"),
        (
            {"kafka__linger__ms": "5"},
            "does not take the option kafka.linger.ms: batches are sent when they are",
        ),
        ({"checkpointLocation": "/c"}, "does not take the option checkpointLocation; remove it"),
        ({"path": "/c"}, "the topic is named with the option topic"),
        ({"topic": " "}, "topic is empty: give it a name, or remove it"),
        ({"is_stream": True, "writeId": "x"}, "a stream is exactly once without it, by its checkpoint"),
        ({"kafka__security__protocol": "TLS"}, "has to be one of PLAINTEXT, SSL"),
        ({"tpoic": "x"}, "does not take the option tpoic; did you mean topic?"),
    ],
)
def test_what_cannot_be_taken_is_one_sentence(options, sentence):
    with pytest.raises(OptionError) as refused:
        taken(**options)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
