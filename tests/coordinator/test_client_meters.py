"""Whose use is measured together, what a client has to wait for, and what is forgotten."""

import tracemalloc

import pytest

from odradek.coordinator.security import client_meters
from odradek.coordinator.security.client_meters import (
    IDLE_MS_MAX,
    METERS_MAX,
    FetchCharge,
    QuotaMeters,
    Windows,
)
from odradek.wire.errors import ErrorCode, KafkaError

ALICE, BOB = "User:alice", "User:bob"


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def meters(clock):
    return QuotaMeters(clock)


def user(name, client_id=""):
    parts = [("client-id", client_id)] if client_id != "" else []
    return (*parts, ("user", name))


def client(name):
    return (("client-id", name),)


def test_nothing_is_measured_without_a_quota(meters):
    assert not meters.is_active
    assert meters.fetch_charge(ALICE, "c") is None
    assert meters.mutation_charge(ALICE, "c", is_strict=True) is None
    meters.follow({(("ip", None),): {"connection_creation_rate": 5.0}})
    assert not meters.is_active
    meters.follow({user("alice"): {"producer_byte_rate": 5.0}})
    assert meters.is_active
    of_alice, of_bob = meters.of(ALICE, "c"), meters.of(BOB, "c")
    assert (of_alice.fetch, of_alice.request, of_alice.mutation, of_bob.produce) == (None,) * 4
    assert len(meters) == 1
    meters.follow({})
    assert (meters.is_active, len(meters)) == (False, 0)


def test_use_is_measured_at_the_level_of_the_quota(meters):
    rate = {"producer_byte_rate": 5.0}
    meters.follow({user("alice"): rate, user("bob", None): rate, client(None): rate})
    assert meters.of(ALICE, "c").produce is meters.of(ALICE, "d").produce
    assert meters.of(BOB, "c").produce is not meters.of(BOB, "d").produce
    assert meters.of(BOB, "c").produce is meters.of(BOB, "c").produce
    assert meters.of("User:eve", "c").produce is meters.of("User:mallory", "c").produce
    assert meters.of("User:eve", None).produce is None
    assert meters.of("User:eve", "").produce is None


def test_a_meter_keeps_what_was_recorded_when_its_quota_is_another(meters, clock):
    meters.follow({user("alice"): {"producer_byte_rate": 1000.0}})
    meter = meters.of(ALICE, "c").produce
    assert meter.charge(10_000, clock()) == 0
    before = meters.generation
    meters.follow({user("alice"): {"producer_byte_rate": 500.0}})
    assert meters.generation > before
    assert meters.of(ALICE, "c").produce is meter
    assert meter.throttle_ms(clock()) == 10_000


def test_another_level_is_measured_anew(meters, clock):
    meters.follow({user("alice"): {"producer_byte_rate": 1000.0}})
    of_user = meters.of(ALICE, "c").produce
    meters.follow(
        {user("alice"): {"producer_byte_rate": 1000.0}, user("alice", "c"): {"producer_byte_rate": 7.0}}
    )
    of_client = meters.of(ALICE, "c").produce
    assert of_client is not of_user
    assert of_client.bound == 7
    assert meters.of(ALICE, "other").produce is of_user


def test_the_same_quotas_again_change_nothing(meters):
    quotas = {user("alice"): {"producer_byte_rate": 1000.0}}
    assert meters.follow(quotas)
    generation = meters.generation
    assert not meters.follow(quotas)
    assert meters.generation == generation


def test_a_meter_is_dropped_after_an_hour_without_an_event(meters, clock):
    meters.follow({client(None): {"producer_byte_rate": 1000.0}})
    kept, dropped = meters.of(ALICE, "kept").produce, meters.of(ALICE, "dropped").produce
    dropped.record(1, clock())
    clock.now_ms += 1
    kept.record(1, clock())
    clock.now_ms += IDLE_MS_MAX - 1
    generation = meters.generation
    meters.drop_idle()
    assert meters.generation == generation + 1
    assert meters.of(ALICE, "kept").produce is kept
    assert meters.of(ALICE, "dropped").produce is not dropped


def test_clients_that_make_up_ids_do_not_fill_the_memory(meters):
    meters.follow({client(None): {"producer_byte_rate": 1000.0}})
    for number in range(METERS_MAX + 500):
        meters.of(ALICE, f"{number}")
        assert len(meters) <= METERS_MAX + 1


def test_a_client_at_work_keeps_its_meter_whatever_ids_another_one_makes_up(meters, clock):
    meters.follow({client(None): {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0}})
    heavy = meters.of(ALICE, "heavy")
    for number in range(2 * METERS_MAX):
        if number % 1000 == 0:
            clock.now_ms += 1
            heavy.produce.record(1_000, clock())
            heavy.mutation.record(5, clock())
        made_up = meters.of(BOB, f"{number}")
        made_up.produce.record(1, clock())
        made_up.mutation.record(1, clock())
    assert meters.of(ALICE, "heavy").produce is heavy.produce
    assert meters.of(ALICE, "heavy").mutation is heavy.mutation


def test_of_long_ids_the_beginning_is_kept(meters):
    meters.follow({client(None): {"producer_byte_rate": 1000.0}})
    tracemalloc.start()
    try:
        for number in range(1_000):
            meters.of(ALICE, f"{number}" * 10_000)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(meters) == 1_000
    assert used_bytes < 5_000_000


def test_long_ids_are_told_apart(meters):
    long = "x" * 1000
    meters.follow({client(None): {"producer_byte_rate": 1000.0}, client(long): {"producer_byte_rate": 7.0}})
    of_it, of_another = meters.of(ALICE, long).produce, meters.of(ALICE, long + "y").produce
    assert (of_it.bound, of_another.bound) == (7, 1000)
    assert meters.of(ALICE, long).produce is of_it
    meters.follow({client(long): {"producer_byte_rate": 9.0}})
    assert meters.of(ALICE, long).produce.bound == 9
    assert meters.of(ALICE, long + "y").produce is None


# Fetch


def fetch_charge(meters, **quotas) -> FetchCharge:
    meters.follow({user("alice"): {name: float(value) for name, value in quotas.items()}})
    return meters.fetch_charge(ALICE, "c")


def test_a_response_that_has_to_wait_does_not_count(meters, clock):
    charge = fetch_charge(meters, consumer_byte_rate=1000)
    assert charge.bytes_max == 10_000
    assert charge.throttle_ms(9_000) == 0
    assert charge.throttle_ms(9_000) == 8_000
    assert charge.throttle_ms(1_000) == 0


def test_processor_time_makes_a_fetch_wait_and_stays_counted(meters, clock):
    charge = fetch_charge(meters, consumer_byte_rate=1000, request_percentage=10)
    charge.add(500_000_000)
    charge.add(600_000_000)
    # 110 % over 10 s are 11 %.
    assert charge.throttle_ms(9_000) == 1_000
    fetch = meters.of(ALICE, "c").fetch
    assert fetch.per_second(clock()) == 0


def test_a_shorter_response_gives_back_the_rest(meters, clock):
    charge = fetch_charge(meters, consumer_byte_rate=1000)
    assert charge.throttle_ms(9_000) == 0
    charge.take_back(8_000)
    assert charge.throttle_ms(9_000) == 0


def test_fetches_without_a_quota_of_theirs_are_not_charged(meters):
    assert fetch_charge(meters, producer_byte_rate=5) is None
    assert fetch_charge(meters, request_percentage=5).bytes_max == float("inf")


# Partitions


def mutation(meters, *, is_strict):
    meters.follow({user("alice"): {"controller_mutation_rate": 1.0}})
    return meters.mutation_charge(ALICE, "c", is_strict=is_strict)


def test_a_strict_request_is_done_into_the_negative_and_then_refused(meters, clock):
    charge = mutation(meters, is_strict=True)
    charge(10)
    charge(10)  # 1 is left before it
    assert charge.throttle_ms() == 0
    with pytest.raises(KafkaError) as refused:
        charge(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert charge.throttle_ms() == 9_000
    clock.now_ms += 4_000
    assert charge.throttle_ms() == 5_000
    clock.now_ms += 5_000
    charge(1)


def test_an_old_request_is_always_done_and_waits_afterwards(meters):
    charge = mutation(meters, is_strict=False)
    charge(10)
    assert charge.throttle_ms() == 0
    charge(10)
    assert charge.throttle_ms() == 9_000
    charge(10)
    assert charge.throttle_ms() == 19_000


def test_meters_are_found_without_a_search_until_any_is_another(meters):
    rate = {"consumer_byte_rate": 5.0}
    meters.follow({user("alice"): rate})
    assert meters.of(ALICE, "c") is meters.of(ALICE, "c")
    assert meters.of(BOB, "c").fetch is None
    before = meters.of(ALICE, "c").fetch
    meters.follow({user("alice"): rate, user("bob"): rate})
    assert meters.of(ALICE, "c").fetch is before
    assert meters.of(BOB, "c").fetch is not None
    meters.follow({user("bob"): rate})
    assert meters.of(ALICE, "c").fetch is None


def test_a_bounded_number_of_clients_is_remembered(meters, monkeypatch):
    monkeypatch.setattr(client_meters, "REMEMBERED_MAX", 10)
    meters.follow({user("alice"): {"consumer_byte_rate": 5.0}})
    found = [meters.of(ALICE, f"client {number}") for number in range(10)]
    assert meters.of(ALICE, "client 0") is found[0]
    meters.of(ALICE, "one more")
    assert not any(meters.of(ALICE, f"client {number}") is one for number, one in enumerate(found))
    of_long = meters.of(ALICE, "x" * 30_000)
    assert meters.of(ALICE, "x" * 30_000) is not of_long, "a long id is not kept"
    assert of_long.fetch is meters.of(ALICE, "c").fetch


def test_windows_are_options(clock):
    meters = QuotaMeters(clock, Windows(3, 2_000), Windows(5, 1_000))
    meters.follow(
        {
            user("alice"): {
                "producer_byte_rate": 100.0,
                "request_percentage": 1.0,
                "controller_mutation_rate": 1.0,
            }
        }
    )
    of_alice = meters.of(ALICE, "c")
    assert of_alice.produce.charge(800, clock()) == 4_000
    assert of_alice.mutation.tokens(clock()) == 5
    # Processor time makes a client wait for a window at most.
    assert of_alice.charge_request(10**12, clock()) == 2_000
