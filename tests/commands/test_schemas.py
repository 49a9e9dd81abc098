"""Schemas of a registry and of a folder: what is decoded, what is asked, and what goes wrong."""

import json
import os
import time

import pytest

from odradek.client.client_error import ClientError
from odradek.commands import schemas as module
from odradek.commands.decoding import Decoders
from odradek.commands.schemas import SCHEMA_BYTES_MAX, SCHEMAS_MAX, Folder, NoSchema, Registry, Schemas
from odradek.embedding.free_port import free_port
from odradek.wire.records import Record, build_batch
from tests.client.topics import create_topic, produce_batch
from tests.registries import Registry as Server
from tests.registries import framed

POINT = json.dumps({"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]})
PROTO = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'
X7, A7 = b"\x0e", b"\x08\x07"


@pytest.fixture
def server():
    with Server() as running:
        yield running


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def decoded(schemas, content, form="auto", topic="t"):
    return Decoders(form, (), schemas).of(topic).both(Record(0, 0, None, content, ()))[1]


def test_a_header_leads_to_the_schema_of_the_registry(server):
    server.schemas = {
        12: {"schema": POINT},
        13: {"schema": PROTO, "schemaType": "PROTOBUF"},
        14: {"schema": "{}", "schemaType": "JSON"},
    }
    schemas = Schemas(Registry(server.url))
    for content, form, value in (
        (framed(12, X7), "avro", {"x": 7}),
        (framed(13, b"\x00" + A7), "protobuf", {"a": 7}),
        (framed(13, b"\x02\x02\x0a\x02hi"), "protobuf", {"b": "hi"}),
        (framed(14, b'{"x": 7}'), "json", {"x": 7}),
    ):
        found = decoded(schemas, content)
        assert (found.form, found.value, found.note) == (form, value, f"schema {content[4]}")
    assert server.asked == [f"/schemas/ids/{number}" for number in (12, 13, 14)], "each once"


def test_references_are_read_first(server):
    server.versions = {
        ("money", "3"): {
            "schema": '{"type": "record", "name": "Money", "fields": [{"name": "n", "type": "int"}]}'
        },
        ("b.proto", "1"): {
            "schema": 'package p; import "c.proto"; message B { p.C c = 1; }',
            "references": [{"name": "c.proto", "subject": "c.proto", "version": 2}],
        },
        ("c.proto", "2"): {"schema": "package p; message C { int32 n = 1; }"},
    }
    server.schemas = {
        1: {
            "schema": '{"type": "record", "name": "O", "fields": [{"name": "m", "type": "Money"}]}',
            "references": [{"name": "Money", "subject": "money", "version": 3}],
        },
        2: {
            "schema": 'import "b.proto"; message A { p.B b = 1; }',
            "schemaType": "PROTOBUF",
            "references": [{"name": "b.proto", "subject": "b.proto", "version": 1}],
        },
        3: {"schema": POINT, "references": [{"name": "x", "subject": "a/../b", "version": "1/2"}]},
    }
    schemas = Schemas(Registry(server.url))
    assert decoded(schemas, framed(1, X7)).value == {"m": {"n": 7}}
    assert decoded(schemas, framed(2, b"\x00\x0a\x04\x0a\x02\x08\x07")).value == {"b": {"c": {"n": 7}}}
    assert decoded(schemas, framed(3, X7)).form == "hex"
    assert server.asked[-1] == "/subjects/a%2F..%2Fb/versions/1%2F2"


def test_references_in_a_circle_end(server):
    server.versions = {
        ("a", "1"): {"schema": POINT, "references": [{"name": "a", "subject": "a", "version": 1}]}
    }
    server.schemas = {1: {"schema": '"Point"', "references": [{"name": "a", "subject": "a", "version": 1}]}}
    assert decoded(Schemas(Registry(server.url)), framed(1, X7)).value == {"x": 7}
    many = [{"name": str(number), "subject": "a", "version": 1} for number in range(1000)]
    server.schemas = {2: {"schema": '"Point"', "references": many}}
    assert "refers to more than" in decoded(Schemas(Registry(server.url)), framed(2, X7)).note


def test_what_the_registry_does_not_have_is_hex_with_a_sentence_and_asked_for_again_later(server):
    clock = Clock()
    schemas = Schemas(Registry(server.url, clock=clock))
    for _ in range(3):
        found = decoded(schemas, framed(5, X7))
        assert (found.form, found.text) == ("hex", b"00000000050e")
        assert "schema 5 is not to be had: the registry does not have it" in found.note
    assert len(server.asked) == 1
    clock.now += module.FAILURE_KEPT_S + 1
    server.schemas[5] = {"schema": POINT}
    assert decoded(schemas, framed(5, X7)).value == {"x": 7}


def test_a_content_that_does_not_fit_is_hex_with_a_sentence(server):
    server.schemas = {
        1: {"schema": POINT},
        2: {"schema": "no JSON"},
        3: {"schema": "x", "schemaType": "PROTOBUF"},
    }
    server.schemas[4] = {"schema": "x", "schemaType": "THRIFT"}
    schemas = Schemas(Registry(server.url))
    for content, told in (
        (framed(1, X7 + b"more"), "schema 1: the content does not fit: 4 bytes are left"),
        (framed(1, b""), "ends too early"),
        (framed(2, X7), "is not JSON"),
        (framed(3, X7), "not understood"),
        (framed(4, X7), "THRIFT, which is not known here"),
    ):
        found = decoded(schemas, content)
        assert (found.form, told in found.note) == ("hex", True), found


@pytest.mark.parametrize(
    ("status", "raw", "told"),
    [
        (500, None, "answers with the status 500"),
        (302, None, "answers with the status 302"),
        (401, None, "refuses its user"),
        (None, b"<html>", "not answer with a JSON object"),
        (None, b"[" * 100_000, "not answer with a JSON object"),
        (None, b'"' + b"x" * (SCHEMA_BYTES_MAX + 10) + b'"', "larger than"),
    ],
)
def test_a_registry_that_is_wrong_is_left_alone_for_a_while(server, status, raw, told):
    server.failing, server.raw = status, raw
    clock = Clock()
    schemas = Schemas(Registry(server.url, clock=clock))
    notes = {decoded(schemas, framed(number, X7)).note for number in range(20)}
    assert all(told in note for note in notes), notes
    assert len(server.asked) <= 20
    if "larger" not in told:
        assert len(server.asked) == 1
    clock.now += 100
    server.failing = server.raw = None
    server.schemas[1] = {"schema": POINT}
    assert decoded(schemas, framed(1, X7)).value == {"x": 7}


def test_a_registry_that_is_away_or_silent_costs_one_wait(server):
    away = Schemas(Registry(f"http://127.0.0.1:{free_port()}"))
    assert "the schema registry does not answer" in decoded(away, framed(1, X7)).note
    server.waits.clear()
    silent = Schemas(Registry(server.url, timeout_s=0.2))
    began = time.monotonic()
    for number in range(50):
        assert "does not answer" in decoded(silent, framed(number, X7)).note
    assert time.monotonic() - began < 30
    assert len(server.asked) == 1


def test_a_slow_registry_does_not_hold_up_many_schemas(server):
    clock = Clock()
    server.schemas = {number: {"schema": POINT} for number in range(50)}
    server.told = lambda: setattr(clock, "now", clock.now + 2)
    schemas = Schemas(Registry(server.url, clock=clock))
    found = [decoded(schemas, framed(number, X7)) for number in range(50)]
    assert [one.form for one in found[:3]] == ["avro"] * 3
    assert "is slow" in found[-1].note
    assert len(server.asked) == 3


def test_the_number_of_schemas_that_are_kept_is_bounded(server):
    server.schemas = {number: {"schema": '"long"'} for number in range(SCHEMAS_MAX + 20)}
    registry = Registry(server.url, clock=lambda: 0.0)
    for number in (*range(SCHEMAS_MAX + 20), 0, SCHEMAS_MAX + 19):
        registry.schema(number)
    assert len(server.asked) == SCHEMAS_MAX + 21, "the first one is asked for again, the last one is not"


def test_user_and_password_are_sent_and_are_not_in_the_url(server):
    server.schemas[1] = {"schema": POINT}
    Registry(server.url, user_info="ann:secret").schema(1)
    assert server.authorizations == ["Basic YW5uOnNlY3JldA=="]
    for url in ("http://ann:secret@x:1", "ftp://x", "x:8081", "http://", "http://x:99999", "http://x/?a=b"):
        with pytest.raises(ClientError):
            Registry(url)


def test_a_folder_has_schemas_of_topics(tmp_path):
    (tmp_path / "orders.avsc").write_text(POINT)
    (tmp_path / "orders-key.proto").write_text('import "sub/id.proto"; message Key { s.Id id = 1; }')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "id.proto").write_text("package s; message Id { int32 n = 1; }")
    (tmp_path / "plain.proto").write_text(PROTO)
    schemas = Schemas(None, Folder(str(tmp_path)))
    key, value = Decoders("auto", (), schemas).of("orders").both(Record(0, 0, b"\x0a\x02\x08\x07", X7, ()))
    assert (key.form, key.value, key.note) == ("protobuf", {"id": {"n": 7}}, "orders-key.proto")
    assert (value.form, value.value, value.note) == ("avro", {"x": 7}, "orders.avsc")
    assert decoded(schemas, framed(99, X7), topic="orders").value == {"x": 7}, "a header is passed over"
    assert decoded(schemas, framed(99, b"\x02\x02\x0a\x02hi"), topic="plain").value == {"b": "hi"}
    assert decoded(schemas, A7, topic="plain").value == {"a": 7}
    assert decoded(schemas, b'{"x": 7}', topic="other").form == "json"
    assert decoded(schemas, b"\xff", "protobuf", topic="plain").form == "hex"


def test_a_schema_file_that_is_wrong_is_a_sentence_and_is_read_again_when_it_is_mended(tmp_path):
    path = tmp_path / "t.avsc"
    path.write_text("{")
    schemas = Schemas(None, Folder(str(tmp_path)))
    assert "t.avsc: the schema is not JSON" in decoded(schemas, X7).note
    path.write_text(POINT)
    os.utime(path, (1, 1))
    assert decoded(schemas, X7).value == {"x": 7}
    path.write_bytes(b" " * (SCHEMA_BYTES_MAX + 1))
    os.utime(path, (2, 2))
    assert "larger than" in decoded(schemas, X7).note


def test_no_topic_and_no_import_leads_out_of_the_folder(tmp_path):
    inside = tmp_path / "schemas"
    inside.mkdir()
    (tmp_path / "secret.proto").write_text("message Secret { int32 a = 1; }")
    (tmp_path / "secret.avsc").write_text(POINT)
    (inside / "t.proto").write_text('import "../secret.proto"; message M { Secret s = 1; }')
    schemas = Schemas(None, Folder(str(inside)))
    for topic in ("../secret", "..", "a/b", "\x00", "", "x" * 300):
        assert schemas.of_topic(topic, "value", X7) is None
    with pytest.raises(NoSchema, match="not declared"):
        schemas.of_topic("t", "value", A7)
    with pytest.raises(ClientError, match="not a folder"):
        Folder(str(tmp_path / "nothing"))


def test_consume_decodes_with_a_registry_and_says_what_it_cannot(odradek_command, cluster, server, tmp_path):
    topic = create_topic(cluster)
    server.schemas[12] = {"schema": POINT}
    records = [(0, 1, framed(12, X7), framed(12, X7), ()), (1, 1, None, framed(13, X7), ())]
    produce_batch(cluster, topic, 0, build_batch(records))
    config = tmp_path / "registry.properties"
    config.write_text("basic.auth.user.info=ann:secret\n")
    at = ("--schema-registry", server.url, "--schema-registry-config", str(config))
    found = odradek_command("consume", topic, "--decode", "auto", *at, "--json")
    first, second = map(json.loads, found.out.splitlines())
    assert (first["key_decoded"], first["value_form"], first["value_note"]) == ({"x": 7}, "avro", "schema 12")
    assert second["value_form"] == "hex"
    assert "schema 13 is not to be had" in second["value_note"]
    assert set(server.authorizations) == {"Basic YW5uOnNlY3JldA=="}
    plain = odradek_command("consume", topic, "-s", "avro", *at, "-n", "1", "-f", "%k %s\\n")
    assert plain.out == '{"x": 7} {"x": 7}\n'
    refused = odradek_command("consume", topic, *at)
    assert (refused.status, "are for --decode" in refused.err) == (2, True)
    config.write_text("basic.auth.password=x\n")
    wrong = odradek_command("consume", topic, "--decode", "avro", *at)
    assert (wrong.status, "basic.auth.password, which is none of" in wrong.err) == (1, True)
