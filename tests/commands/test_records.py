"""`odradek produce` and `odradek consume` at a broker of ours; compat_tests has the same at others."""

import io
import itertools
import json
import sys
import types

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odradek
from odradek.client import progress
from odradek.commands import record_printer
from odradek.wire.records import build_batch, iter_whole_batches
from tests.client.topics import Transactions, create_topic, delete_records, produce, produce_batch
from tests.commands.test_record_json import CONTENTS, HEADERS
from tests.kit import compressed_forms
from tests.kit.collecting import collected
from tests.kit.terminal import Terminal as PersonsTerminal

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker():
    """Without retention, as the records have times of long ago."""
    with odradek.Broker(num_partitions=2, log_retention_ms=-1) as running:
        yield running


@pytest.fixture
def topic(cluster):
    return create_topic(cluster, 2, f"records-{next(NUMBERS)}")


@pytest.fixture
def typed(monkeypatch, odradek_command):
    """Runs `produce` with bytes on its stdin."""

    def ended(content, *arguments):
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
        return odradek_command("produce", *arguments)

    return ended


def rows(ended):
    assert (ended.status, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def stored(cluster, topic, partition=0):
    """The records sections of the log, without what depends on the producer."""
    from odradek.client.reading import Reader

    bounds = {(topic, partition): (0, cluster.list_offsets({(topic, partition): -1})[topic, partition])}
    return [
        bytes(fetched.buffer[position + 61 : position + header.size_bytes])
        for fetched in Reader(cluster, bounds, read_committed=False)
        for position, header in iter_whole_batches(fetched.buffer)
    ]


# Writing ----------------------------------------------------------------------------------------------


def test_lines_become_values(typed, odradek_command, topic):
    assert typed(b"one\n\n\xff\r\nlast", topic, "-p", "1") == (0, "", "")
    found = rows(odradek_command("consume", topic, "--json"))
    assert [(one["partition"], one["key"], one.get("value"), one.get("value_base64")) for one in found] == [
        (1, None, "one", None),
        (1, None, "", None),
        (1, None, None, "/w0="),
        (1, None, "last", None),
    ]


def test_keys_nulls_and_headers_come_from_the_line_and_the_options(typed, odradek_command, topic):
    typed(b"k:v:w\nno key\n:x\nk:\n", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "a=", "-H", "n", "-p", "0")
    found = rows(odradek_command("consume", topic, "--json"))
    assert [(one["key"], one["value"]) for one in found] == [
        ("k", "v:w"),
        (None, "no key"),
        (None, "x"),
        ("k", None),
    ]
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": ""}, {"key": "n", "value": None}]
    assert all(one["headers"] == headers for one in found)
    typed(b"a\0b\0", topic, "-k", "κ", "--delimiter", "\\0", "-p", "1")
    assert odradek_command("consume", f"{topic}:1", "-f", "%k=%s;").out == "κ=a;κ=b;"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_written_and_read(typed, odradek_command, topic, codec):
    lines = [f"{number} {'x' * 50}" for number in range(1000)]
    assert typed("\n".join(lines).encode(), topic, "--compression", codec, "-p", "0").status == 0
    assert odradek_command("consume", topic).out.splitlines() == lines


def test_large_input_becomes_many_batches_in_order(typed, odradek_command, cluster, topic):
    lines = [b"%06d" % number for number in range(5000)]
    assert typed(b"\n".join(lines), topic, "-p", "0", "--batch-bytes", "2000").status == 0
    assert len(stored(cluster, topic)) > 50
    assert odradek_command("consume", topic).out.encode().split() == lines


def test_one_key_goes_to_one_partition_as_with_java(typed, odradek_command, topic):
    typed(b"".join(b"k%d:v\n" % number for number in range(20)), topic, "-K", ":")
    found = rows(odradek_command("consume", topic, "--json"))
    assert len({one["partition"] for one in found}) == 2
    from odradek.client.partitioning import murmur2

    assert all(one["partition"] == (murmur2(one["key"].encode()) & 0x7FFFFFFF) % 2 for one in found)


def test_a_topic_is_made_if_wanted(typed, odradek_command):
    name = f"made-{next(NUMBERS)}"
    refused = typed(b"x", name)
    assert refused.status == 1
    assert f"topic {name} does not exist" in refused.err
    assert typed(b"x", name, "--create").status == 0
    assert odradek_command("consume", name).out == "x\n"


def test_a_bad_line_is_named_and_what_stands_before_it_is_written(typed, odradek_command, topic):
    refused = typed(b'{"value": "a"}\n\n{"value": "b"}\nnonsense\n', topic, "--json")
    assert refused.status == 1
    assert refused.err.startswith("odradek: line 4 is not JSON")
    assert refused.err.endswith("; 2 records before it written\n")
    assert sorted(odradek_command("consume", topic).out.split()) == ["a", "b"]
    refused = typed(b'{"value": "a", "partition": 2}', topic, "--json")
    assert "line 1 names partition 2" in refused.err
    assert typed(b'{"value": "a", "partition": 2}', topic, "--json", "-p", "-1").status == 0


def test_a_transaction_is_all_or_nothing(typed, odradek_command, topic):
    refused = typed(b'{"value": "a"}\nnonsense\n', topic, "--json", "--transaction")
    assert (refused.status, refused.err.endswith("; nothing is written\n")) == (1, True)
    assert odradek_command("consume", topic).out == ""
    assert typed(b'{"value": "a"}\n{"value": "b"}\n', topic, "--json", "--transaction", "pay-1").status == 0
    assert sorted(odradek_command("consume", topic).out.split()) == ["a", "b"]
    markers = rows(odradek_command("consume", topic, "--json", "--control-records"))
    assert {one.get("control") for one in markers} == {None, "commit"}, "nothing of the first was sent"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--acks", "0"), "acks 0"),
        (("--acks", "1", "--transaction"), "transaction"),
        (("-k", "a", "-K", ":"), "-K"),
        (("--json", "-Z"), "--json"),
        (("--delimiter", ""), "delimiter"),
        (("-K", ""), "separator"),
        (("-H", "=x"), "no name"),
        (("--rate", "0"), "--rate"),
        (("--file", "/nowhere/at/all"), "cannot be read"),
        (("-p", "9"), "partition 9"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(typed, topic, arguments, why):
    refused = typed(b"x", topic, *arguments)
    assert refused.status == 1
    assert why in refused.err
    assert refused.err.count("\n") == 1


def test_without_a_topic_it_is_said(typed):
    assert "no TOPIC" in typed(b"x").err
    assert "names no topic" in typed(b'{"value": "x"}', "--json").err


def test_a_record_that_is_too_large_is_refused_with_a_remedy(typed, odradek_command):
    name = f"small-{next(NUMBERS)}"
    odradek_command("topics", "create", name, "-p", "1", "-c", "max.message.bytes=1000")
    content = b"\n".join([b"x" * 100] * 20)
    refused = typed(content, name)
    assert refused.status == 1
    assert "--batch-bytes" in refused.err
    assert typed(content, name, "--batch-bytes", "500").status == 0
    assert odradek_command("consume", name).out.encode() == content + b"\n"


def test_acknowledged_by_the_leader_alone(typed, odradek_command, topic):
    assert typed(b"x", topic, "--acks", "1") == (0, "", "")
    assert odradek_command("consume", topic).out == "x\n"


def test_a_file_and_a_rate(typed, odradek_command, topic, tmp_path, monkeypatch):
    from odradek.commands import produce as module

    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    (tmp_path / "lines").write_bytes(b"a\nb\nc\n")
    assert typed(b"not read", topic, "--file", str(tmp_path / "lines"), "--rate", "1", "-p", "0").status == 0
    assert odradek_command("consume", topic).out == "a\nb\nc\n"
    assert [round(one) for one in waits if one > 0.2] == [1, 2]


# Reading ----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Of a person."""

    def isatty(self):
        return True

    def taken(self):
        """What it has got since the last question."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def test_a_person_who_types_records_reads_how_that_ends(odradek_command, topic, broker):
    with PersonsTerminal("produce", topic, "-b", broker.bootstrap_servers) as person:
        person.read_until("odradek: each line is a record; Ctrl-D ends\n")
        person.type("hello\n\x04")
        assert person.ended()[1] == 0
    assert odradek_command("consume", topic).out == "hello\n"


def test_what_takes_long_shows_its_progress_on_a_terminal(typed, odradek_command, topic, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    note = f"odradek: 2 records to {topic}\n"
    monkeypatch.setattr(progress, "TERMINAL_FIRST_S", 1e9)
    typed(b"a\nb\n", topic)
    assert terminal.taken() == note, "it was not long"
    odradek_command("consume", topic)
    assert terminal.taken() == ""

    monkeypatch.setattr(progress, "TERMINAL_FIRST_S", 0.0)
    typed(b"a\nb\n", topic, "-p", "0")
    produced = terminal.taken()
    assert produced.startswith("\r\x1b[Kproduce: 2 rows, ")
    assert produced.endswith("\r\x1b[K" + note), "the line is taken away"
    odradek_command("consume", topic)
    assert terminal.taken().startswith("\r\x1b[Kconsume: ")
    typed(b"c\n", topic, "-q")
    odradek_command("consume", topic, "-q")
    assert terminal.taken() == ""


def test_an_empty_topic_has_nothing_and_an_unknown_one_is_named(odradek_command, topic):
    assert odradek_command("consume", topic) == (0, "", "")
    assert odradek_command("consume", topic, "--json") == (0, "", "")
    for arguments, why in (
        (("nowhere",), "topic nowhere does not exist"),
        (("nowhere*",), "no topic matches nowhere*"),
        ((f"{topic}:2",), f"topic {topic} has no partition 2: it has 2"),
        ((topic, "-p", "5"), "no partition 5"),
        ((topic, "-o", "stored"), "-g GROUP"),
        ((topic, "-f", "%z"), "%z"),
        ((topic, "--grep", "/[/"), "not a regular expression"),
    ):
        refused = odradek_command("consume", *arguments)
        assert refused.status == 1
        assert why in refused.err


def test_partitions_and_topics_are_chosen(odradek_command, cluster, topic):
    produce(cluster, topic, 0, [b"a"])
    produce(cluster, topic, 1, [b"b"])
    other = create_topic(cluster, 1, f"{topic}-other")
    produce(cluster, other, 0, [b"c"])

    def found(*arguments):
        return sorted(odradek_command("consume", *arguments, "-f", "%s\\n").out.split())

    assert found(topic) == ["a", "b"]
    assert found(f"{topic}:1") == ["b"]
    assert found(topic, "-p", "0") == ["a"]
    assert found(topic, other) == ["a", "b", "c"]
    assert found(f"{topic}*") == ["a", "b", "c"]
    assert found(f"/^{topic}-o/") == ["c"]
    assert found(topic, f"{topic}:0") == ["a", "b"], "each partition once"


def test_a_range_is_read_and_no_more(odradek_command, cluster):
    topic = create_topic(cluster, 1, f"range-{next(NUMBERS)}")
    produce(cluster, topic, 0, [b"%d" % number for number in range(10)], timestamp=1000)
    delete_records(cluster, topic, 0, 2)

    def found(*arguments):
        return odradek_command("consume", topic, *arguments, "-f", "%s").out

    assert found() == "23456789"
    assert found("-o", "0") == "23456789"
    assert found("-o", "99") == ""
    assert found("-o", "-3") == "789"
    assert found("-o", "4:6") == "45"
    assert found("-o", "5", "--until", "-1") == "5678"
    assert found("-o", "s@1004", "-o", "e@1006") == "45"
    assert found("-o", "@1004:1006", "-n", "1") == "4"
    assert found("-n", "0") == ""
    assert found("-o", "end", "--exit") == ""


def test_the_end_does_not_wait_for_open_transactions_and_aborted_ones_are_left_out(odradek_command, cluster):
    topic = create_topic(cluster, 1, f"transactions-{next(NUMBERS)}")
    first, second = Transactions(cluster, f"{topic}-a"), Transactions(cluster, f"{topic}-b")
    first.write(topic, 0, [b"aborted"])
    first.end(committed=False)
    first.write(topic, 0, [b"committed"])
    first.end(committed=True)
    second.write(topic, 0, [b"open"])
    produce(cluster, topic, 0, [b"behind"])
    try:
        assert odradek_command("consume", topic).out.split() == ["committed"]
        assert odradek_command("consume", topic, "--isolation", "read_uncommitted").out.split() == [
            "aborted",
            "committed",
            "open",
            "behind",
        ]
        shown = rows(odradek_command("consume", topic, "--json", "--control-records"))
        assert [one.get("control", one["value"]) for one in shown] == ["abort", "committed", "commit"]
    finally:
        second.end(committed=True)
    assert odradek_command("consume", topic).out.split() == ["committed", "open", "behind"]


def test_a_search_finds_text_patterns_and_keys(odradek_command, cluster, topic):
    produce_batch(
        cluster,
        topic,
        0,
        build_batch(
            [
                (0, 1, b"k1", b"refund \xff", ()),
                (1, 1, b"k2", None, (("trace", b"deep refund"),)),
                (2, 1, b"k1", b"REFUND", ()),
            ]
        ),
    )

    def found(*arguments):
        ended = odradek_command("consume", topic, *arguments, "-f", "%o ")
        assert ended.status == 0
        return ended.out.split(), ended.err

    assert found("--grep", "refund") == (["0", "1"], "odradek: 3 records searched, 2 printed\n")
    assert found("--grep", "/(?i)^refund/")[0] == ["0", "2"]
    assert found("--key", "k1")[0] == ["0", "2"]
    assert found("--key", "k1", "--grep", "REF")[0] == ["2"]
    assert found("--grep", "refund", "-n", "1", "-q") == (["0"], "")
    assert found("--grep", "/(a*)*b/")[0] == [], "a pattern that others search for ever"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["-K", ":"], "k:v\nno:\n:n\n"),
        (["-K:", "-Z"], "k:v\nno:NULL\nNULL:n\n"),
        (["-D", ";"], "v;;n;"),
        (["-K", "%", "-D", "\\x7c\\n"], "k%v|\nno%|\n%n|\n"),
    ],
)
def test_separators_are_those_of_kcat(typed, odradek_command, topic, arguments, printed):
    typed(b"k:v;no:;n;", topic, "-p", "0", "-K", ":", "-Z", "-D", ";")
    assert odradek_command("consume", topic, *arguments) == (0, printed, "")


def test_other_tools_have_other_letters_for_json_files_and_properties(
    typed, odradek_command, topic, tmp_path
):
    (tmp_path / "lines").write_text("a\n")
    assert typed(b"", topic, "-l", str(tmp_path / "lines")).status == 0
    expected = odradek_command("consume", topic, "--json")
    assert json.loads(expected.out)["value"] == "a"
    for letters in (["-J"], ["-f", "json"]):
        assert odradek_command("consume", topic, *letters) == expected
    (tmp_path / "kcat.conf").write_text("broker.address.family=any\nclient.id=kcat\n")
    assert odradek_command("consume", topic, "-F", str(tmp_path / "kcat.conf")).out == "a\n"


@pytest.mark.parametrize(
    "arguments", [["-K", ":", "--json"], ["-D", ";", "-f", "%s"], ["-K", ":", "-f", "json"]]
)
def test_separators_do_not_go_with_formats(odradek_command, topic, arguments):
    ended = odradek_command("consume", topic, *arguments)
    assert (ended.status, "-K and -D do not go with -f" in ended.err) == (2, True)


def test_follow_goes_on_after_the_end(odradek_command, cluster, topic, monkeypatch):
    produce(cluster, topic, 0, [b"old"])
    plain = record_printer.batches_of

    def batches_of(fetched, **options):
        if fetched.partition == 0:
            produce(cluster, topic, 1, [b"new"])
        return plain(fetched, **options)

    monkeypatch.setattr(record_printer, "batches_of", batches_of)
    ended = odradek_command("consume", topic, "--follow", "-n", "2")
    assert (ended.status, ended.out) == (0, "old\nnew\n")


# There and back ---------------------------------------------------------------------------------------

RECORDS = st.lists(
    st.tuples(st.integers(-1, 1_700_000_000_000), CONTENTS, CONTENTS, HEADERS), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(partitions=st.tuples(RECORDS, RECORDS), is_transaction=st.booleans())
def test_a_copy_has_the_same_bytes(typed, odradek_command, cluster, partitions, is_transaction):
    source, copy = (create_topic(cluster, 2, f"{kind}-{next(NUMBERS)}") for kind in ("source", "copy"))
    for number, records in enumerate(partitions):
        rebuilt = build_batch([(offset, *record) for offset, record in enumerate(records)])
        produce_batch(cluster, source, number, rebuilt)
    printed = odradek_command("consume", source, "--json").out
    options = ["--transaction"] if is_transaction else []
    assert typed(printed.encode(), copy, "--json", *options) == (0, "", "")

    def lines(text):
        return sorted(text.splitlines())

    again = odradek_command("consume", copy, "--json").out
    assert lines(again.replace(copy, source)) == lines(printed)
    for number in range(2):
        assert stored(cluster, source, number) == stored(cluster, copy, number)[:1]


def test_every_topic_finds_its_way_by_the_names_in_the_lines(typed, odradek_command, cluster, topic):
    other = create_topic(cluster, 1, f"{topic}-too")
    typed(
        json.dumps({"topic": topic, "partition": 1, "value": "a"}).encode()
        + b"\n"
        + json.dumps({"topic": other, "value": None, "key": "k"}).encode(),
        "--json",
    )
    assert odradek_command("consume", f"{topic}:1").out == "a\n"
    (row,) = rows(odradek_command("consume", other, "--json"))
    assert (row["key"], row["value"]) == ("k", None)


def test_compressed_data_of_each_form_are_printed(cluster, odradek_command):
    """Old clients of .NET and PHP write gzip with bytes behind its end."""
    with collected() as failures:
        for name, batch in compressed_forms.readable_batches():
            with failures.of(name):
                topic = create_topic(cluster, 1, f"forms-{next(NUMBERS)}")
                assert produce_batch(cluster, topic, 0, batch) == 0
                printed = rows(odradek_command("consume", topic, "-e", "-q", "--json"))
                expected = [(one.key.decode(), one.value.decode()) for one in compressed_forms.RECORDS]
                assert [(one["key"], one["value"]) for one in printed] == expected
