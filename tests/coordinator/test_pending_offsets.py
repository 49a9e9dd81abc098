"""Offsets of open transactions against a plain list of what happened, by hypothesis."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.effects import MarkerRecord, TransactionalRecord
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.pending_offsets import PendingOffsets
from odradek.coordinator.groups.record_codec import (
    CommittedOffset,
    encode_group_record,
    encode_offset,
    encode_offset_key,
)
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.messages.group_records import GroupMetadataKey
from tests.coordinator.executed_lines import lines_run
from tests.kit.machine import replay_all

places = st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 1))
producers = st.integers(1, 3)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), places),
        st.tuples(st.just("delete"), places),
        st.tuples(st.just("write"), places, producers),
        st.tuples(st.just("delete in"), places, producers),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.just("delete group"), st.sampled_from("gh")),
    ),
    max_size=40,
)


def log_of(happened):
    """The records that tell it; every offset is the place of its record."""
    for number, (what, *more) in enumerate(happened):
        if what == "end":
            yield MarkerRecord(*more)
        elif what == "delete group":
            yield *encode_group_record(GroupMetadataKey(group=more[0]), None), number
        else:
            key = encode_offset_key(*more[0])
            value = None if what.startswith("delete") else offset(number)
            if what in ("write", "delete in"):
                yield TransactionalRecord(key, value, number, more[1])
            else:
                yield key, value, number


def offset(number):
    return encode_offset(CommittedOffset(number, -1, "", number, -1))


def outcome_of(happened):
    """By place: the committed offset; and which places are pending, by producer."""
    committed, pending = {}, {}
    for number, (what, *more) in enumerate(happened):
        if what == "commit":
            committed[more[0]] = number
        elif what in ("delete", "delete in"):
            committed.pop(more[0], None)
            for written in pending.values():
                written.pop(more[0], None)
        elif what == "write":
            pending.setdefault(more[1], {})[more[0]] = number
        elif what == "end":
            for place, written in pending.pop(more[0], {}).items():
                if more[1]:
                    committed[place] = max(written, committed.get(place, -1))
    return committed, {place for written in pending.values() for place in written}


@given(happenings)
def test_a_machine_holds_what_the_log_says_whatever_the_order_of_its_transactions(happened):
    machine = GroupMachine(GroupSettings(), lambda: "1")
    replay_all(machine, list(log_of(happened)))
    committed, pending = outcome_of(happened)
    held = {
        (group_id, topic, partition): one.offset
        for group_id in "gh"
        for topic, offsets in machine.offsets.of_group(group_id).items()
        for partition, one in offsets.items()
    }
    assert held == committed
    every = {(group, topic, index) for group in "gh" for topic in "tu" for index in range(2)}
    assert {place for place in every if machine.pending.has(*place)} == pending
    assert machine.topics() == {topic for _, topic, _ in {*committed, *pending}}
    of_topic = {place for place in pending if place[1] == "t"}
    assert set(machine.pending.of_topics({"t": None})) == of_topic
    assert {(group, *place) for group in "gh" for place in machine.pending.of_group(group)} == pending


@given(happenings)
def test_nothing_is_kept_of_what_is_decided(happened):
    pending = PendingOffsets()
    for number, (what, *more) in enumerate(happened):
        if what == "commit":
            pending.overtake(*more[0])
        elif what == "delete":
            pending.remove(*more[0])
        elif what == "write":
            pending.put(more[1], *more[0], CommittedOffset(number, -1, "", number, -1))
    for producer_id in range(1, 4):
        pending.end(producer_id, True)
    assert pending.by_group == {}
    assert pending._of_producers == {}


def pending_of(producer_count):
    """Offsets that so many producers have written for one partition."""
    pending = PendingOffsets()
    for producer_id in range(producer_count):
        pending.put(producer_id, "g", "t", 0, CommittedOffset(producer_id, -1, "", 0, -1))
    return pending


@pytest.mark.parametrize(
    "act",
    [
        lambda pending, last: pending.end(0, True),
        lambda pending, last: pending.end(last, True),
        lambda pending, last: pending.end(last, False),
        lambda pending, last: pending.overtake("g", "t", 0),
    ],
    ids=["the first commits", "the last commits", "the last aborts", "a commit outside"],
)
def test_an_end_costs_what_its_producer_has_written_however_many_others_there_are(act):
    few, many = (lines_run(partial(act, pending_of(count), count - 1)) for count in (3, 300))
    assert few == many > 0
