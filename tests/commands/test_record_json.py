"""A record as a line of JSON and back: nothing is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.client_error import ClientError
from odradek.client.stored_records import StoredBatch
from odradek.commands.record_json import json_lines, read_record
from odradek.wire.records import Record, build_batch, end_txn_marker, iter_records, read_batch_header

CONTENTS = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
NAMES = st.binary(max_size=8).map(lambda name: name.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(st.tuples(NAMES, CONTENTS), max_size=4).map(tuple)


def lines_of(records, topic="t"):
    batch = build_batch(records)
    return json_lines(topic, 0, StoredBatch(read_batch_header(batch), "create", records))


@given(
    topic=st.text(max_size=10),
    timestamp=st.integers(-1, 2**62 - 1),
    key=CONTENTS,
    value=CONTENTS,
    headers=HEADERS,
)
def test_any_record_comes_back_as_it_was(topic, timestamp, key, value, headers):
    (line,) = lines_of([Record(5, timestamp, key, value, headers)], topic)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["offset"] == 5
    assert read_record(line) == (topic, 0, timestamp, key, value, list(headers))


def test_text_is_text_and_bytes_are_base64():
    name = b"\xfe".decode("utf-8", "surrogateescape")
    (line,) = lines_of([Record(0, 1, "kéy".encode(), b"\xff\0", ((name, None),))])
    assert json.loads(line) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 1,
        "timestamp_type": "create",
        "key": "kéy",
        "value_base64": "/wA=",
        "headers": [{"key_base64": "/g==", "value": None}],
    }


@pytest.mark.parametrize("committed", [True, False])
def test_markers_say_what_they_are_and_are_not_written_again(committed):
    batch = bytes(
        end_txn_marker(committed=committed, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    )
    header = read_batch_header(batch)
    (line,) = json_lines("t", 0, StoredBatch(header, "create", [*iter_records(batch, header)]))
    assert json.loads(line)["control"] == ("commit" if committed else "abort")
    with pytest.raises(ClientError, match="control record"):
        read_record(line)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[1]", "no object"),
        (b"\xff", "not JSON"),
        (b"{}", "neither"),
        (b'{"payload": "x", "value": "y"}', "'payload'"),
        (b'{"value": {"a": 1}}', "neither text nor null"),
        (b'{"value": 5}', "neither text nor null"),
        (b'{"value_base64": "x y"}', "not base64"),
        (b'{"value": "\\ud800"}', "not Unicode text"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both"),
        (b'{"value": "a", "partition": true}', "partition"),
        (b'{"value": "a", "partition": 1.0}', "partition"),
        (b'{"value": "a", "timestamp": -2}', "timestamp"),
        (b'{"value": "a", "topic": 1}', "topic"),
        (b'{"value": "a", "headers": {"a": "b"}}', "headers"),
        (b'{"value": "a", "headers": [{"value": "b"}]}', "header"),
        (b'{"value": "a", "headers": [{"key": "b", "vlaue": "c"}]}', "header"),
        (b"[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_other_lines_are_refused_in_words(line, why):
    with pytest.raises(ClientError, match=why):
        read_record(line)
