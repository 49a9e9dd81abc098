"""`consume --decode` and `-s`."""

import itertools
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.client_error import ClientError
from odradek.client.group_offsets import commit
from odradek.client.stored_records import StoredBatch
from odradek.commands.decoding import PARSED_BYTES_MAX, Decoders
from odradek.commands.record_format import RecordFormat
from odradek.commands.record_json import read_record
from odradek.wire.messages.transaction_records import RECORDS, TransactionLogKey, TransactionLogValue
from odradek.wire.records import Record, build_batch, end_txn_marker, read_batch_header
from tests.client.topics import create_topic, produce_batch

NUMBERS = itertools.count()


def decoded(content, form="auto", packs=(), topic="t"):
    """(form, value, text) of a value."""
    return tuple(Decoders(form, packs).of(topic).both(Record(0, 0, None, content, ()))[1])[:3]


@pytest.mark.parametrize(
    ("content", "form", "value"),
    [
        (b'{"a": [1, null]}', "json", {"a": [1, None]}),
        (b"42", "json", 42),
        (b"plain text\n", "utf-8", "plain text\n"),
        ("ключ".encode(), "utf-8", "ключ"),
        (b"", "utf-8", ""),
        (b"a", "utf-8", "a"),
        (b"\x05", "msgpack", 5),
        (b"\x81\xa1a\x01", "msgpack", {"a": 1}),
        (b"a\0b", "utf-8", "a\0b"),
        (b"\xff\xfe\x00", "hex", "fffe00"),
        (b"\0\0\0\0\x0c\xff", "hex", "000000000cff"),
        (b"NaN", "utf-8", "NaN"),
        (b"1e999", "utf-8", "1e999"),
        (b'"\\ud800"', "utf-8", '"\\ud800"'),
        (b"[" * 100_000, "utf-8", "[" * 100_000),
        (b"9" * 5_000, "utf-8", "9" * 5_000),
        (None, "null", None),
    ],
)  # fmt: skip
def test_auto_finds_the_form(content, form, value):
    found = decoded(content)
    assert found[:2] == (form, value)
    if form in ("json", "utf-8"):
        assert found[2] == content


def test_a_form_that_is_named_is_the_only_one():
    assert decoded(b"1", "utf-8") == ("utf-8", "1", b"1")
    assert decoded(b"1", "msgpack")[:2] == ("msgpack", 49)
    assert decoded(b"1", "hex") == ("hex", "31", b"31")
    for form in ("json", "utf-8", "msgpack", "internal"):
        assert decoded(b"\xc1", form) == ("hex", "c1", b"c1")


def test_large_contents_are_not_parsed():
    large = b" " * PARSED_BYTES_MAX
    assert decoded(large + b"1")[0] == "utf-8"
    assert decoded(large[1:] + b"1")[0] == "json"
    assert decoded(b"\xc6" + struct.pack(">I", PARSED_BYTES_MAX) + large)[0] == "hex"


@given(content=st.binary(max_size=50) | st.text(max_size=30).map(str.encode))
def test_whatever_comes_is_shown_on_one_line_of_json(content):
    header = read_batch_header(build_batch([(0, 1, content, content, ())]))
    batch = StoredBatch(header, "create", [Record(0, 1, content, content, ())])
    (line,) = Decoders("auto", ()).json_lines("t", 0, batch)
    assert line.count(b"\n") == 1
    row = json.loads(line)
    assert row["value_form"] in ("json", "utf-8", "msgpack", "hex")
    assert row["key_decoded"] == row["value_decoded"]
    assert read_record(line).value == content, "produce --json takes the bytes"


# Packs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pack", "content", "text"),
    [
        ("b", b"\xff", "-1"),
        ("B", b"\xff", "255"),
        ("h", b"\x01\x02", "258"),
        ("<h", b"\x01\x02", "513"),
        ("<h>h", b"\x01\x00\x00\x01", "1 1"),
        ("H$", b"\xff\xff", "65535"),
        ("i", b"\xff\xff\xff\xfe", "-2"),
        ("I", b"\xff\xff\xff\xfe", "4294967294"),
        ("q", struct.pack(">q", -7), "-7"),
        ("<Q", struct.pack("<Q", 2**63), "9223372036854775808"),
        ("cc", b"ok", "o k"),
        ("bs", b"\x01rest", "1 rest"),
        ("bs$", b"\x01", "1 "),
        ("b", b"\x01more", "1"),
    ],
)
def test_letters_are_those_of_kcat(pack, content, text):
    assert decoded(content, None, [pack])[2].decode() == text


def test_what_does_not_fit_is_hex():
    assert decoded(b"\x01\x02", None, ["i"])[:2] == ("hex", "0102")
    assert decoded(b"\x01\x02", None, ["b$"])[:2] == ("hex", "0102")


def test_key_and_value_have_packs_of_their_own():
    record = Record(0, 0, b"\x01", b"\x00\xff", ())
    key, value = Decoders(None, ["key=b"]).of("t").both(record)
    assert (key.value, value.text) == ([1], b"\x00\xff")
    key, value = Decoders("hex", ["value=h"]).of("t").both(record)
    assert (key.text, value.text) == (b"01", b"255")


@pytest.mark.parametrize("pack", ["x", "sb", "$b", "", ">", "key", "header=b", "value=", "b$$"])
def test_a_pack_that_is_none_is_refused(pack):
    with pytest.raises(ClientError, match="is not understood"):
        Decoders(None, [pack])


@pytest.mark.parametrize("options", [("avro", []), (None, ["value=avro"]), (None, ["avro"])])
def test_avro_is_refused_with_a_sentence(options):
    with pytest.raises(ClientError, match="avro needs schemas: name a registry"):
        Decoders(*options)


# In a format ------------------------------------------------------------------------------------------


def lines(text, *records, **options):
    header = read_batch_header(build_batch(list(records)))
    batch = StoredBatch(header, "create", [Record(*one) for one in records])
    return b"".join(RecordFormat(text, **options).lines("t", 0, batch))


def test_only_what_is_plainly_asked_for_is_decoded():
    record = (0, 7, b"\x01", b"\x81\xa1a\x01", (("h", b"\x01"),))
    found = lines("%k %s %s{hex} %S %o %T %h\\n", record, decoders=Decoders("auto", ()))
    assert found == b'1 {"a": 1} 81a16101 4 0 7 h=\x01\n'
    assert lines("%k|%s", (0, 7, None, None, ()), nulls=True, decoders=Decoders("hex", ())) == b"NULL|NULL"
    escape = (0, 7, None, b"\xa1\x1b", ())
    assert lines("%s", escape, is_terminal=True, decoders=Decoders("msgpack", ())) == b'"\\u001b"'
    escape = (0, 7, None, b"\x1b[2J", ())
    assert lines("%s", escape, is_terminal=True, decoders=Decoders("utf-8", ())) == b"\\x1b[2J"


def test_markers_of_transactions_are_left_alone():
    content = end_txn_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    header = read_batch_header(content)
    assert header.is_control
    batch = StoredBatch(header, "create", [Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0", ())])
    assert RecordFormat("%k{hex} %s", decoders=Decoders("auto", ())).lines("t", 0, batch) == [
        b"00000001 \0\0\0\0\0\0"
    ]
    assert b"value_form" not in Decoders("auto", ()).json_lines("t", 0, batch)[0]


# Of a broker ------------------------------------------------------------------------------------------


def test_internal_topics_are_read_by_their_fields(odradek_command, cluster):
    topic = create_topic(cluster, 1, f"decoded-{next(NUMBERS)}")
    commit(cluster, f"group-of-{topic}", {(topic, 0): (7, "note")})
    found = odradek_command("consume", "__consumer_offsets", "--decode", "auto", "--json")
    assert (found.status, found.err) == (0, "")
    rows = [json.loads(line) for line in found.out.splitlines()]
    (row,) = [one for one in rows if one["key_decoded"].get("topic") == topic]
    assert row["key_form"] == row["value_form"] == "internal"
    assert row["key_decoded"] == {
        "type": "OffsetCommit",
        "group": f"group-of-{topic}",
        "topic": topic,
        "partition": 0,
    }
    assert (row["value_decoded"]["offset"], row["value_decoded"]["metadata"]) == (7, "note")
    text = odradek_command("consume", "__consumer_offsets", "--decode", "internal", "-f", "%k\\n").out
    assert f'"topic": "{topic}"' in text


def test_the_state_of_transactions_is_read():
    key = RECORDS.encode_key(TransactionLogKey(transactional_id="pay"))
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_timeout_ms=9,
        transaction_status=0,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    record = Record(0, 0, key, RECORDS.encode_value(value, 0), ())
    found = Decoders("auto", ()).of("__transaction_state").both(record)
    assert found[0].value == {"type": "TransactionLog", "transactional_id": "pay"}
    assert found[1].value["producer_id"] == 5
    tombstone = Decoders("auto", ()).of("__transaction_state").both(record._replace(value=None))
    assert tombstone[1].text is None
    damaged = Decoders("auto", ()).of("__transaction_state").both(record._replace(value=b"\xff\xff"))
    assert [one.form for one in damaged] == ["utf-8", "hex"]


def test_the_command_decodes(odradek_command, cluster):
    topic = create_topic(cluster, 1, f"decoded-{next(NUMBERS)}")
    records = [(0, 1, b"\0\0\0\7", b"\x93\x01\x02\x03", ()), (1, 2, None, b'{"a":  1}', ())]
    produce_batch(cluster, topic, 0, build_batch(records))
    assert odradek_command("consume", topic, "--decode", "auto").out == '[1, 2, 3]\n{"a":  1}\n'
    found = odradek_command("consume", topic, "-s", "key=i$", "--decode", "msgpack", "-f", "%k=%s;")
    assert found.out == "7=[1, 2, 3];=7b2261223a2020317d;"
    refused = odradek_command("consume", topic, "--decode", "avro")
    assert (refused.status, "avro needs" in refused.err) == (1, True)
    assert odradek_command("consume", topic, "--decode", "nonsense").status == 2
