"""Metrics in OpenTelemetry's form: what is read of them, and what they can cost at most."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.otlp import (
    FIELDS_MAX,
    FIELDS_OF_ONE_MAX,
    FIELDS_PER_STEP,
    LABELS_MAX,
    POINTS_MAX,
    TEXT_CHARACTERS_MAX,
    reading_metrics,
)
from odradek.wire.work import finish
from tests.otlp_writer import (
    CUMULATIVE,
    DELTA,
    fixed,
    gauge,
    label,
    metrics_data,
    number,
    part,
    point,
    total,
    varint,
)


def read(data):
    return finish(reading_metrics(data))


def refusal_of(data):
    with pytest.raises(KafkaError) as refused:
        read(data)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    return refused.value.message


def test_gauges_and_sums_have_their_values():
    pushed = read(
        metrics_data(
            gauge("a.gauge", point(1.5, 1700, client="x"), point(-3)),
            total("a.sum", point(7), temporality=CUMULATIVE),
            total("a.delta", point(2), temporality=DELTA),
            group_id="g",
        )
    )
    assert pushed.labels == {"group_id": "g"}
    assert [(one.name, one.labels, one.value, one.is_delta, one.time_ms) for one in pushed.points] == [
        ("a.gauge", {"client": "x"}, 1.5, False, 1700),
        ("a.gauge", {}, -3, False, 0),
        ("a.sum", {}, 7, False, 0),
        ("a.delta", {}, 2, True, 0),
    ]
    assert {one.observations for one in pushed.points} == {None}


@pytest.mark.parametrize(("field", "label_field"), [(9, 9), (10, 1), (11, 7)])
def test_histograms_and_summaries_have_a_sum_and_a_number_of_observations(field, label_field):
    one = part(1, label(label_field, "k", "v"), fixed(4, "<Q", 12), fixed(5, "<d", 34.5))
    (found,) = read(metrics_data(part(2, part(1, "h"), part(field, one, number(2, DELTA))))).points
    assert (found.name, found.labels, found.value, found.observations) == ("h", {"k": "v"}, 34.5, 12)
    assert found.is_delta


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (part(1, "text"), "text"),
        (number(2, 1), "true"),
        (number(2, 0), "false"),
        (number(3, -5), "-5"),
        (fixed(4, "<d", 0.5), "0.5"),
        (part(7, b"\xff"), ""),
    ],
)
def test_labels_are_texts_whatever_they_were(value, text):
    data = part(1, part(1, label(1, "k", value)))
    assert read(data).labels == {"k": text}


def test_several_resources_are_read_as_one_client():
    pushed = read(metrics_data(gauge("a", point(1)), x="1") + metrics_data(gauge("b", point(2)), y="2"))
    assert pushed.labels == {"x": "1", "y": "2"}
    assert [one.name for one in pushed.points] == ["a", "b"]


def test_nothing_is_an_empty_push():
    assert read(b"") == ({}, (), 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\xff" * 11,
        number(1, 5),
        metrics_data(part(2, part(1, "n"), part(5, part(1, number(4, 1))))),
        metrics_data(part(2, part(1, "n"), part(5, part(1, part(6, b"1234567"))))),
        b"\x09" + b"1234567",
    ],
    ids=["no size", "too short", "a group", "endless", "number", "varint value", "seven bytes", "cut"],
)
def test_what_is_no_metrics_is_refused(data):
    assert refusal_of(data).startswith("The metrics of a client have ")


def test_points_and_labels_over_the_limit_are_left_out():
    many = [point(n) for n in range(POINTS_MAX + 7)]
    pushed = read(metrics_data(gauge("many", *many)))
    assert (len(pushed.points), pushed.left_out) == (POINTS_MAX, 7)
    labels = {f"k{n}": "v" for n in range(LABELS_MAX + 5)}
    (one,) = read(metrics_data(gauge("labels", point(1, **labels)))).points
    assert len(one.labels) == LABELS_MAX


def test_empty_fields_without_end_are_refused():
    assert "fields" in refusal_of(part(1, b"") * (FIELDS_MAX + 1))


def test_a_large_push_is_read_in_small_steps():
    """Counted in fields, not in time: points of one metric, and metrics with a point each."""
    for data in (
        metrics_data(gauge("m", *[point(n, k="v") for n in range(3000)])),
        metrics_data(*[gauge(f"m{n}", point(n, k="v")) for n in range(3000)]),
    ):
        read_in, steps = [], 0

        def reading(data=data, read_in=read_in):
            read_in.append((yield from reading_metrics(data)))

        for _ in reading():
            steps += 1
        assert len(read_in[0].points) == 3000
        assert steps > 3000 * 8 / (2 * FIELDS_PER_STEP)


UNKNOWN = number(15, 2**64 - 1)
"""A field that nobody reads, of many bytes."""


@pytest.mark.parametrize(
    "data",
    [
        UNKNOWN * 20_000,
        number(2, 1) * 20_000,
        part(1, b"") * 20_000,
        part(1, UNKNOWN * 20_000),
        part(1, part(1, b"") * 20_000),
        part(1, part(1, UNKNOWN * 500) * 40),
        part(1, part(1, label(1, "k", "v") * 100) * 40),
        part(1, part(2, b"") * 20_000),
        part(1, part(2, UNKNOWN * 20_000)),
        part(1, part(2, part(2, b"") * 20_000)),
        metrics_data(part(2, UNKNOWN * 20_000)),
        metrics_data(part(2, part(1, "n") * 20_000)),
        metrics_data(part(2, part(5, UNKNOWN * 20_000))),
        metrics_data(part(2, part(5, part(1, b"") * 20_000))),
        metrics_data(part(2, part(5, part(1, UNKNOWN * 500) * 40))),
        metrics_data(part(2, part(5, part(1, label(7, "k", "v") * 100) * 40))),
    ],
)
def test_a_push_of_any_form_is_read_in_small_steps(data):
    """Each has 16,000 fields or more. A step has those that end it, and a point or resource more at most."""
    steps = sum(1 for _ in reading_metrics(data))
    assert steps >= 16_000 // (FIELDS_PER_STEP + FIELDS_OF_ONE_MAX)


@pytest.mark.parametrize(
    "data",
    [
        part(1, part(1, UNKNOWN * (FIELDS_OF_ONE_MAX + 1))),
        part(1, part(1, label(1, "k", UNKNOWN * (FIELDS_OF_ONE_MAX + 1)))),
        metrics_data(part(2, part(5, part(1, UNKNOWN * (FIELDS_OF_ONE_MAX + 1))))),
        metrics_data(part(2, part(5, part(1, label(7, "k", "v") * (FIELDS_OF_ONE_MAX // 4 + 1))))),
    ],
)
def test_a_point_or_a_resource_of_too_many_fields_is_refused(data):
    assert "fields" in refusal_of(data)


@pytest.mark.parametrize("character", ["x", "\xe9", "\u20ac", "\U0001f600"])
def test_names_and_labels_are_kept_in_part_and_counted(character):
    long = character * (TEXT_CHARACTERS_MAX + 300)
    kept = character * TEXT_CHARACTERS_MAX
    pushed = read(metrics_data(gauge(long, point(1, k=long)), client=long))
    (one,) = pushed.points
    assert (one.name, one.labels, pushed.labels) == (kept, {"k": kept}, {"client": kept})
    texts = (kept, kept, kept, "k", "client")
    assert sum(sys.getsizeof(text) - sys.getsizeof("") for text in texts) <= pushed.text_bytes + 3 * 60
    assert pushed.text_bytes <= 4 * sum(map(len, texts))


def code_of(data):
    try:
        read(data)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    assert code_of(data) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)


@given(st.data())
def test_a_flipped_byte_is_read_or_refused(data):
    whole = bytearray(metrics_data(gauge("a.gauge", point(1.5, 1700, client="x")), group_id="g"))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert code_of(bytes(whole)) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)


def test_varints_have_64_bits():
    assert read(part(1, part(1, label(1, "k", varint(3 << 3) + b"\xff" * 9 + b"\x01")))).labels == {"k": "-1"}
