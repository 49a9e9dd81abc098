"""The broker's clock in the hand of a test: every time-out of the broker fires as if the time had passed."""

import itertools
import json
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import odradek
from odradek.embedding.kit_calls import _Connection
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import alter_client_quotas
from tests.server.clocked import FEW_PARTITIONS, PATIENCE_S, Client
from tests.server.test_token_logins import WITH_TOKENS, create, described, log_in

DAY_MS = 86_400_000


@pytest.fixture
def running():
    brokers, clients = [], []

    def start(*, process=False, **options):
        given = {**FEW_PARTITIONS, **{name.replace("_", "."): value for name, value in options.items()}}
        broker = odradek.Broker(process=process, options=given).start()
        brokers.append(broker)
        client = Client(broker.port)
        clients.append(client)
        client.find("g")
        return broker, client

    yield start
    for client in clients:
        client.close()
    for broker in brokers:
        broker.close()


# The clock


@pytest.mark.parametrize("process", [False, True])
def test_the_clock_says_what_an_advance_adds_and_never_goes_back(running, process):
    broker, _ = running(process=process)
    clock = broker.clock
    assert abs(clock.now_ms - time.time() * 1000) < 5_000
    clock.freeze()
    begun_ms = clock.now_ms
    clock.advance(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)
    assert clock.now_ms - begun_ms == DAY_MS + 2 * 3_600_000 + 3 * 60_000 + 4_005
    clock.advance(timedelta(seconds=1.5))
    assert clock.now_ms - begun_ms == DAY_MS + 2 * 3_600_000 + 3 * 60_000 + 5_505
    clock.to(datetime(2100, 1, 1, tzinfo=UTC))
    assert clock.now_ms == 4_102_444_800_000
    clock.to(4_102_444_800_007)
    assert clock.now_ms == 4_102_444_800_007
    with pytest.raises(TestKitError, match="does not go backwards"):
        clock.to(4_102_444_800_006)
    with pytest.raises(TestKitError, match="does not go backwards"):
        clock.advance(seconds=-1)
    with pytest.raises(TestKitError, match="the year 2200"):
        clock.advance(days=365 * 150)
    assert clock.now_ms == 4_102_444_800_007
    clock.unfreeze()
    deadline = time.monotonic() + PATIENCE_S
    while clock.now_ms == 4_102_444_800_007:
        assert time.monotonic() < deadline


def test_while_it_is_frozen_no_time_out_fires_however_long_that_is(running):
    broker, client = running(group_min_session_timeout_ms=10)
    broker.clock.freeze()
    client.sync(joined := client.join(session_ms=50))
    state = client.group_state()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        assert client.group_state() == state
    broker.clock.advance(milliseconds=60)
    assert client.group_state() == "Empty"
    assert joined.generation_id == 1


def test_a_broker_that_stops_ends_an_advance(running):
    broker, client = running()
    client.create()
    client.begin()
    failures = []

    def advance():
        try:
            broker.clock.advance(days=20_000)
        except RuntimeError as error:
            failures.append(str(error))

    begun_ms = broker.clock.now_ms
    advancing = threading.Thread(target=advance)
    advancing.start()
    deadline = time.monotonic() + PATIENCE_S
    while broker.clock.now_ms - begun_ms < DAY_MS:
        assert time.monotonic() < deadline
    broker.stop()
    advancing.join(PATIENCE_S)
    assert failures == ["clock.advance: the broker has stopped, or was restored, meanwhile"]


def test_programs_in_other_languages_move_it_over_http(tmp_path):
    with odradek.Broker(options={"odradek.test.api.listen": f"unix:{tmp_path}/kit"}) as broker:
        broker.clock.freeze()
        begun_ms = broker.clock.now_ms
        connection = _Connection(f"{tmp_path}/kit", PATIENCE_S)
        asked = [
            ("advance", {"hours": 1}, 200, str(begun_ms + 3_600_000)),
            ("to", {"when": begun_ms}, 400, "does not go backwards"),
            ("to", {"when": "noon"}, 400, "needs milliseconds since 1970, not 'noon'"),
            ("advance", {"days": "two"}, 400, "clock.advance"),
            ("advance", {"weeks": 2}, 400, "clock.advance"),
            ("now", {}, 200, str(begun_ms + 3_600_000)),
        ]
        for name, arguments, status, said in asked:
            headers = {"Content-Type": "application/json", "Host": ""}
            connection.request("POST", f"/admin/clock/{name}", json.dumps(arguments), headers)
            response = connection.getresponse()
            text = response.read().decode()
            assert (response.status, said in text) == (status, True), text
        connection.close()


# Groups


def test_a_silent_member_of_a_classic_group_is_thrown_out_and_the_others_rebalance(running):
    broker, client = running()
    joined = client.join(session_ms=45_000)
    client.sync(joined)
    with Client(broker.port) as other:
        # The second member waits for the first one, which never comes.
        waiting = threading.Thread(target=lambda: joins.append(other.join(session_ms=1_800_000)))
        joins = []
        waiting.start()
        deadline = time.monotonic() + PATIENCE_S
        while client.group_state() != "PreparingRebalance":
            assert time.monotonic() < deadline
        broker.clock.advance(seconds=46)
        waiting.join(PATIENCE_S)
        assert [one.generation_id for one in joins] == [2]
        assert [one.member_id for one in client.described().members] == [joins[0].member_id]


def test_a_rebalance_goes_on_without_who_does_not_join_in_time(running):
    broker, client = running()
    joined = client.join(session_ms=1_800_000, rebalance_ms=60_000)
    client.sync(joined)
    with Client(broker.port) as other:
        joins = []
        waiting = threading.Thread(target=lambda: joins.append(other.join(session_ms=1_800_000)))
        waiting.start()
        deadline = time.monotonic() + PATIENCE_S
        while client.group_state() != "PreparingRebalance":
            assert time.monotonic() < deadline
        broker.clock.advance(seconds=59)
        assert not joins
        broker.clock.advance(seconds=2)
        waiting.join(PATIENCE_S)
        assert [one.generation_id for one in joins] == [2]


def test_a_silent_member_of_a_consumer_group_is_thrown_out(running):
    broker, client = running()
    client.create()
    assert client.beat(member_id="m").error_code == 0
    broker.clock.advance(seconds=44)
    assert client.consumer_members() == {"m"}
    broker.clock.advance(seconds=2)
    assert client.consumer_members() == set()
    assert client.beat(member_id="m", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_an_empty_group_expire_and_the_group_with_them(running):
    broker, client = running(offsets_retention_minutes=60)
    client.create()
    joined = client.join(session_ms=45_000)
    client.sync(joined)
    client.commit(7, joined)
    broker.clock.advance(minutes=50)
    assert (client.group_state(), client.committed()) == ("Empty", 7)
    broker.clock.advance(minutes=30)
    assert (client.group_state(), client.committed()) == (None, -1)


# Share groups


def test_a_silent_member_of_a_share_group_is_thrown_out_and_what_it_had_locked_comes_again(running):
    broker, client = running()
    client.create()
    client.configure_group("s", **{"share.auto.offset.reset": "earliest"})
    client.produce((b"k", b"v"), (b"k", b"w"))
    assert client.share_beat(member_id="first").error_code == 0
    epoch, acquired = client.share_fetch_some()
    assert acquired == [(0, 1, 1)]
    broker.clock.advance(seconds=29)
    assert client.share_fetch(epoch) == []
    broker.clock.advance(seconds=2)
    assert client.share_fetch(epoch + 1) == [(0, 1, 2)]
    assert client.share_members() == {"first"}
    broker.clock.advance(seconds=20)
    assert client.share_members() == set()


# Transactions and producers


@pytest.mark.parametrize("process", [False, True])
def test_a_transaction_that_nobody_ends_is_aborted(running, process):
    broker, client = running(process=process)
    client.create()
    client.begin(timeout_ms=60_000)
    assert client.transaction_state() == "Ongoing"
    assert client.offset_at(-1, isolation=1) == 0
    broker.clock.advance(seconds=50)
    assert client.transaction_state() == "Ongoing"
    broker.clock.advance(seconds=30)
    assert client.transaction_state() == "CompleteAbort"
    # The record and the marker.
    assert client.offset_at(-1, isolation=1) == 2
    assert client.records(isolation=0)[0][3] == b"open"


def test_a_transactional_id_without_use_is_forgotten(running):
    broker, client = running()
    client.create()
    client.begin(timeout_ms=60_000)
    broker.clock.advance(days=6)
    assert client.transaction_state() == "CompleteAbort"
    broker.clock.advance(days=2)
    assert client.transaction_state() is None


def test_a_producer_without_a_batch_for_long_is_forgotten(running):
    broker, client = running(producer_id_expiration_ms=3_600_000)
    client.create()
    client.produce((b"k", b"v"), producer_id=5, producer_epoch=0, base_sequence=0)
    broker.clock.advance(minutes=50)
    assert client.producers() == [5]
    broker.clock.advance(minutes=25)
    assert client.producers() == []


# Logs


@pytest.mark.parametrize("process", [False, True])
def test_retention_deletes_what_has_become_too_old(running, process):
    broker, client = running(process=process)
    client.create(retention_ms=3_600_000)
    client.produce((b"k", b"v"))
    broker.clock.advance(minutes=50)
    assert client.offset_at(-2) == 0
    broker.clock.advance(minutes=20)
    assert client.offset_at(-2) == client.offset_at(-1) == 1


def test_a_deleted_segment_leaves_the_disk_after_its_delay(running):
    broker, client = running()
    client.create(retention_ms=1000, file_delete_delay_ms=60_000)
    client.produce((b"k", b"v"), timestamp_ms=1)
    broker.run_retention()
    assert client.offset_at(-2) == 1
    folder = broker.data_dir / "t-0"
    assert [one.name for one in folder.iterdir() if one.name.endswith(".deleted")]
    broker.clock.advance(minutes=2)
    assert not [one.name for one in folder.iterdir() if one.name.endswith(".deleted")]


def test_retention_by_word_does_not_wait_for_its_interval(running):
    broker, client = running()
    client.create(retention_bytes=0)
    for _ in range(3):
        client.produce((b"k", b"v"))
        broker.roll("t")
    assert client.offset_at(-2) == 0
    broker.run_retention()
    assert client.offset_at(-2) == 3


def test_a_roll_begins_a_segment_and_an_empty_one_stays(running):
    broker, client = running()
    client.create(partitions=2)
    client.produce((b"k", b"v"))
    for _ in range(2):
        broker.roll("t")
        broker.roll("t", 0)

    def segments(index):
        return sorted(one.name for one in (broker.data_dir / f"t-{index}").glob("*.log"))

    assert segments(0) == [f"{0:020}.log", f"{1:020}.log"]
    assert segments(1) == [f"{0:020}.log"]
    with pytest.raises(TestKitError, match="no topic 'u'"):
        broker.roll("u")
    with pytest.raises(TestKitError, match="no t-7"):
        broker.roll("t", 7)


@pytest.mark.parametrize("process", [False, True])
def test_compaction_by_word_keeps_the_newest_of_each_key_and_tombstones_until_their_horizon(running, process):
    broker, client = running(process=process)
    client.create(cleanup_policy="compact", delete_retention_ms=3_600_000)
    client.create("u")
    client.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None))
    broker.compact("t")
    assert [(key, value) for _, _, key, value in client.records()] == [(b"a", b"2"), (b"b", None)]
    broker.clock.advance(minutes=50)
    broker.compact("t")
    assert len(client.records()) == 2
    broker.clock.advance(minutes=20)
    broker.compact("t")
    assert [(key, value) for _, _, key, value in client.records()] == [(b"a", b"2")]
    with pytest.raises(TestKitError, match="does not include compact"):
        broker.compact("u")
    with pytest.raises(TestKitError, match="no topic"):
        broker.compact("v")


def test_the_cleaner_compacts_what_is_dirty_and_removes_tombstones_while_time_passes(running):
    broker, client = running(log_cleaner_threads=1)
    client.create(cleanup_policy="compact", delete_retention_ms=3_600_000, min_cleanable_dirty_ratio=0)
    client.produce((b"a", b"1"), (b"a", b"2"), (b"b", None))
    broker.roll("t")
    broker.clock.advance(minutes=2)
    assert [(key, value) for _, _, key, value in client.records()] == [(b"a", b"2"), (b"b", None)]
    broker.clock.advance(hours=2)
    # A log is compacted again when there is something new.
    client.produce((b"c", b"1"))
    broker.roll("t")
    broker.clock.advance(minutes=2)
    assert [(key, value) for _, _, key, value in client.records()] == [(b"a", b"2"), (b"c", b"1")]


def test_times_of_appends_are_those_of_the_clock(running):
    broker, client = running()
    client.create(message_timestamp_type="LogAppendTime")
    broker.clock.freeze()
    broker.clock.to(datetime(2050, 6, 1, tzinfo=UTC))
    client.produce((b"k", b"v"))
    broker.clock.advance(hours=1)
    client.produce((b"k", b"w"))
    june_ms = 2_537_654_400_000
    assert [(one[0], one[1]) for one in client.records()] == [(0, june_ms), (1, june_ms + 3_600_000)]


# Quotas and tokens


def test_a_client_over_its_quota_goes_on_when_the_time_of_its_wait_has_passed(running):
    broker, client = running()
    client.create()
    client.produce((b"k", b"v" * 1000))
    entity = [alter_client_quotas.EntityData(entity_type="client-id", entity_name="tests")]
    limit = alter_client_quotas.OpData(key="producer_byte_rate", value=100.0, remove=False)
    entry = alter_client_quotas.EntryData(entity=entity, ops=[limit])
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    assert client.ask(request, 1, client_id="admin").entries[0].error_code == 0
    waits_ms = list(
        itertools.takewhile(
            lambda wait_ms: not wait_ms,
            (client.produce((b"k", b"v" * 400)).throttle_time_ms for _ in range(20)),
        )
    )
    assert len(waits_ms) < 20
    # It is held back for seconds; its next request waits in the socket.
    client.send_request(alter_client_quotas.AlterClientQuotasRequest(entries=[], validate_only=True), 1)
    broker.clock.advance(minutes=1)
    client.receive(alter_client_quotas.AlterClientQuotasRequest, 1)
    assert client.produce((b"k", b"v" * 400)).throttle_time_ms == 0


def test_a_delegation_token_ends_and_so_does_the_connection_that_it_let_in():
    with odradek.Broker(options=WITH_TOKENS) as broker:
        made = create(broker, life_ms=3_600_000)
        client = Client(broker.port)
        assert log_in(client, made.token_id, made.hmac).error_code == 0
        assert client.topic_id("t") == bytes(16)
        broker.clock.advance(minutes=50)
        assert [one.token_id for one in described(broker, "ann").tokens] == [made.token_id]
        assert client.topic_id("t") == bytes(16)
        broker.clock.advance(hours=2)
        assert described(broker, "ann").tokens == []
        with pytest.raises((EOFError, ConnectionError)):
            client.topic_id("t")
        with Client(broker.port) as late:
            assert log_in(late, made.token_id, made.hmac).error_code


# Real time


def test_a_long_poll_waits_real_time_and_an_advance_disconnects_nobody(running):
    broker, client = running()
    client.create()
    begun = time.monotonic()
    fetched = threading.Thread(target=lambda: client.records(wait_ms=700))
    fetched.start()
    broker.clock.advance(days=1)
    took_s = time.monotonic() - begun
    fetched.join(PATIENCE_S)
    assert time.monotonic() - begun >= 0.7
    if took_s < 0.5:
        # It was under way for the whole advance.
        assert took_s < 0.7
    # The connection was silent for a moment only, whatever `connections.max.idle.ms` is.
    assert client.records() == []


def test_a_long_poll_ends_by_real_time_also_while_the_clock_is_frozen(running):
    broker, client = running()
    client.create()
    broker.clock.freeze()
    begun = time.monotonic()
    assert client.records(wait_ms=100) == []
    # A timer of the loop may come a millisecond early.
    assert 0.095 <= time.monotonic() - begun < PATIENCE_S


# Order


def test_time_outs_of_all_kinds_fire_in_the_order_of_their_deadlines(running):
    """Each writes when it fires: append times say the order."""
    broker, client = running(transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000)
    client.create(retention_ms=90_000)
    client.produce((b"k", b"v"))
    broker.roll("t")
    client.sync(client.join("early", session_ms=30_000), "early")
    client.sync(client.join("late", session_ms=120_000), "late")
    begun_ms = broker.clock.now_ms
    client.begin(timeout_ms=60_000)
    broker.clock.advance(hours=1)
    emptied = {name: at_ms - begun_ms for name, at_ms in times_of_empty_groups(client, begun_ms).items()}
    aborted_ms = time_of_the_marker(client) - begun_ms
    assert 29_000 <= emptied["early"] <= 31_500
    assert 59_000 <= aborted_ms <= 62_500
    assert 119_000 <= emptied["late"] <= 121_500
    assert client.offset_at(-2) > 0


def times_of_empty_groups(client, after_ms):
    """When the first record of each group was written after that time."""
    found = {}
    for index in range(FEW_PARTITIONS["offsets.topic.num.partitions"]):
        for _, at_ms, key, _ in client.records("__consumer_offsets", index=index):
            for name in ("early", "late"):
                if name.encode() in key and at_ms > after_ms:
                    found.setdefault(name, at_ms)
    return found


def time_of_the_marker(client):
    """The time of the transaction's end, in the transactions' own log."""
    times = [
        at_ms
        for index in range(FEW_PARTITIONS["transaction.state.log.num.partitions"])
        for _, at_ms, _, _ in client.records("__transaction_state", index=index)
    ]
    return max(times)
