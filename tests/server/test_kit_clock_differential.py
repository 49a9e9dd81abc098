"""A broker whose clock was advanced has the state of one that has really waited."""

import time

import pytest

import odradek
from odradek.wire.messages import alter_client_quotas, create_topics, fetch, renew_delegation_token
from tests.raw_client import CLIENT_ID
from tests.server import test_token_logins as logins
from tests.server.clocked import FEW_PARTITIONS, PATIENCE_S, Client

OPTIONS = {
    **FEW_PARTITIONS,
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.session.timeout.ms": 300,
    "group.consumer.session.timeout.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.share.min.session.timeout.ms": 300,
    "group.share.session.timeout.ms": 300,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.record.lock.duration.ms": 1_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "offsets.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "producer.id.expiration.ms": 900,
    "producer.id.expiration.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.flush.scheduler.interval.ms": 100,
    "transactional.id.expiration.ms": 1_500,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}
PASSED_MS = 4_000


def act(client, broker):
    """A bit of all, in no time: the clock stands still."""
    now_ms = broker.clock.now_ms
    client.create(retention_ms=700, file_delete_delay_ms=500)
    client.create("open", retention_ms=600_000)
    client.create(
        "squeezed", cleanup_policy="compact", min_cleanable_dirty_ratio=0, delete_retention_ms=1_500
    )
    client.configure_group("s", **{"share.auto.offset.reset": "earliest"})
    client.produce((b"k", b"old"), timestamp_ms=now_ms)
    broker.roll("t")
    client.produce((b"k", b"kept"), timestamp_ms=now_ms + 600_000)
    client.produce((b"k", b"v"), name="open", producer_id=77, producer_epoch=0, base_sequence=0)
    client.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None), name="squeezed")
    broker.roll("squeezed")
    joined = client.join("classic", session_ms=400, rebalance_ms=500)
    client.sync(joined, "classic")
    client.commit(1, joined, "classic")
    client.commit(1, group="brief", retention_ms=1_200)
    client.beat("consumer", "m")
    client.share_beat("s", "m")
    client.share_fetch_some()
    client.begin("tx", timeout_ms=500)


def state_of(client):
    """Everything that people can ask a broker for."""
    described = client.described("classic")
    return {
        "groups": {name: client.group_state(name) for name in ("classic", "consumer", "s", "brief")},
        "members": (len(described.members), client.consumer_members("consumer"), client.share_members("s")),
        "committed": (client.committed("classic"), client.committed("brief")),
        "transaction": client.transaction_state("tx"),
        "starts": {name: client.offset_at(-2, name) for name in ("t", "open", "squeezed")},
        "ends": {name: client.offset_at(-1, name) for name in ("t", "open", "squeezed")},
        "stable": client.offset_at(-1, "t", isolation=1),
        "producers": client.producers("open"),
        "squeezed": [(key, value) for _, _, key, value in client.records("squeezed")],
    }


@pytest.fixture
def brokers(tmp_path):
    with (
        odradek.Broker(options=OPTIONS, data_dir=tmp_path / "waits") as waits,
        odradek.Broker(options=OPTIONS, data_dir=tmp_path / "advances") as advances,
    ):
        yield waits, advances


def files(broker):
    return sorted(
        one.name for one in (broker.data_dir / "t-0").iterdir() if one.suffix in (".log", ".deleted")
    )


@pytest.mark.deep
def test_a_broker_that_was_advanced_is_as_one_that_has_waited(brokers):
    waits, advances = brokers
    with Client(waits.port) as of_waits, Client(advances.port) as of_advances:
        for broker, client in ((waits, of_waits), (advances, of_advances)):
            client.find("classic")
            broker.clock.freeze()
            act(client, broker)
        assert state_of(of_waits) == state_of(of_advances)
        assert state_of(of_advances)["transaction"] == "Ongoing"
        assert state_of(of_advances)["committed"] == (1, 1)
        advances.clock.advance(milliseconds=PASSED_MS)
        expected = state_of(of_advances)
        assert expected["groups"] == {"classic": "Empty", "consumer": None, "s": "Empty", "brief": None}
        assert expected["committed"] == (1, -1)
        assert expected["transaction"] is None
        assert (expected["starts"]["t"], expected["producers"]) == (1, [])
        kept = [(b"b", b"1"), (b"a", b"2")]
        assert expected["squeezed"] == [*kept, (b"c", None)]
        expected_files, expected_share = files(advances), of_advances.share_fetch(0, member_id="other")
        began_ms = waits.clock.now_ms
        waits.clock.unfreeze()
        deadline = time.monotonic() + PATIENCE_S
        while state_of(of_waits) != expected or files(waits) != expected_files:
            assert time.monotonic() < deadline, (state_of(of_waits), expected, files(waits), expected_files)
        assert of_waits.share_fetch(0, member_id="other") == expected_share
        while waits.clock.now_ms < began_ms + PASSED_MS:
            assert time.monotonic() < deadline
        for broker, client in ((waits, of_waits), (advances, of_advances)):
            broker.compact("squeezed")  # behind the horizon of the tombstone
            assert state_of(client) == {**expected, "squeezed": kept}


# Quotas and tokens

WINDOW_MS = 1_000
QUOTA_OPTIONS = {**FEW_PARTITIONS, "quota.window.num": 3, "controller.quota.window.num": 3}
QUOTAS = {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 1_000.0, "controller_mutation_rate": 2.0}
ROUNDING_MS = 5
"""Times are read in whole milliseconds, on both sides."""


def limit(broker):
    """Quotas for the client id of all tests."""
    entity = [alter_client_quotas.EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
    limits = [alter_client_quotas.OpData(key=key, value=value, remove=False) for key, value in QUOTAS.items()]
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.EntryData(entity=entity, ops=limits)], validate_only=False
    )
    with Client(broker.port) as admin:
        assert admin.ask(request, 1, client_id="admin").entries[0].error_code == 0


def waits_of(broker, number):
    """Waits in ms that the broker tells this client now, by quota. Each is asked several times, on a new
    connection: a broker does not read from one that has to wait."""

    def produce(client, _):
        return client.produce((b"k", b"v" * 1_500))

    def read(client, _):
        wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topics = [fetch.FetchTopic(topic="t", partitions=[wanted])]
        return client.ask(fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)

    def change(client, attempt):
        topic = create_topics.CreatableTopic(
            name=f"t-{number}-{attempt}", num_partitions=3, replication_factor=1
        )
        return client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)

    def wait_ms(ask, attempt):
        with Client(broker.port) as client:
            return ask(client, attempt).throttle_time_ms

    return {ask.__name__: [wait_ms(ask, attempt) for attempt in range(3)] for ask in (produce, read, change)}


def wait_for_real(broker, milliseconds):
    """Lets a frozen broker go on for so long or longer; returns how long, in ms of its clock."""
    before_ms = broker.clock.now_ms
    broker.clock.unfreeze()
    deadline = time.monotonic() + PATIENCE_S
    while broker.clock.now_ms < before_ms + milliseconds:
        assert time.monotonic() < deadline
    broker.clock.freeze()
    return broker.clock.now_ms - before_ms


@pytest.mark.deep
def test_who_has_used_up_a_quota_waits_after_an_advance_as_after_that_time():
    with odradek.Broker(options=QUOTA_OPTIONS) as waits, odradek.Broker(options=QUOTA_OPTIONS) as advances:
        for broker in (waits, advances):
            with Client(broker.port) as client:
                client.create()
                client.produce((b"k", b"v" * 1_500))
            broker.clock.freeze()
            limit(broker)
        seen = [waits_of(waits, 0)]
        assert waits_of(advances, 0) == seen[0]
        passed_ms = 0
        # Within a window, into another one, and until all are over.
        for number, milliseconds in enumerate((400, 1_000, 5_000), 1):
            passed_ms += (step_ms := wait_for_real(waits, milliseconds))
            advances.clock.advance(milliseconds=step_ms)
            if min(passed_ms % WINDOW_MS, -passed_ms % WINDOW_MS) < ROUNDING_MS:
                # Rounding would decide in which window they are.
                passed_ms += 2 * ROUNDING_MS
                for broker in (waits, advances):
                    broker.clock.advance(milliseconds=2 * ROUNDING_MS)
            seen.append(waits_of(waits, number))
            for kind, found_ms in waits_of(advances, number).items():
                assert found_ms == pytest.approx(seen[-1][kind], abs=ROUNDING_MS), (kind, seen, passed_ms)
        # It has had to wait for each quota, and the windows of the first step are over.
        assert all(waits_ms[0] == 0 < waits_ms[-1] for waits_ms in seen[0].values())
        assert (seen[3]["produce"], seen[3]["read"]) == (seen[0]["produce"], seen[0]["read"])


TOKEN_OPTIONS = {
    **logins.WITH_TOKENS,
    "delegation.token.expiry.time.ms": "1500",
    "delegation.token.expiry.check.interval.ms": "200",
}
TOKENS_THAT_STAY = {"kept": 3_600, "kept for less": 1_800}
"""Seconds for which they are good."""


def make_tokens(broker):
    """Tokens by name, and a connection that each has let in."""
    made = {
        "short": logins.create(broker, life_ms=900),
        "usual": logins.create(broker),
        "renewed": logins.create(broker),
        "kept": logins.create(broker),
        "kept for less": logins.create(broker, life_ms=1_800_000),
    }
    clients = {name: Client(broker.port) for name in made}
    for name, token in made.items():
        assert logins.log_in(clients[name], token.token_id, token.hmac).error_code == 0
    for name in TOKENS_THAT_STAY:
        assert logins.expire(broker, "ann", made[name].hmac, period_ms=3_600_000).error_code == 0
    renewal = renew_delegation_token.RenewDelegationTokenRequest(
        hmac=made["renewed"].hmac, renew_period_ms=700
    )
    with logins.as_user(broker, "ann") as client:
        assert client.ask(renewal, 2).error_code == 0
    return made, clients


def is_served(client):
    try:
        client.topic_id("t")
    except (EOFError, ConnectionError):
        return False
    return True


def state_of_tokens(broker, made, clients):
    """State of each token: seconds from its issue to its end, or None; whether it lets in, and whether the
    connection from before is still served."""
    known = {one.token_id: one for one in logins.described(broker, "ann").tokens}
    state = {}
    for name, token in made.items():
        with Client(broker.port) as late:
            lets_in = logins.log_in(late, token.token_id, token.hmac).error_code == 0
        kept = known.get(token.token_id)
        good_s = None if kept is None else round((kept.expiry_timestamp - kept.issue_timestamp) / 1000)
        state[name] = (good_s, lets_in, is_served(clients[name]))
    return state


@pytest.mark.deep
def test_tokens_end_in_an_advance_as_in_that_time():
    with odradek.Broker(options=TOKEN_OPTIONS) as waits, odradek.Broker(options=TOKEN_OPTIONS) as advances:
        for broker in (waits, advances):
            broker.clock.freeze()
        of_waits, of_advances = make_tokens(waits), make_tokens(advances)
        before = state_of_tokens(advances, *of_advances)
        assert state_of_tokens(waits, *of_waits) == before
        assert all(lets_in and served for _, lets_in, served in before.values())
        advances.clock.advance(seconds=4)
        # The refusal of a login comes after a while of this clock.
        advances.clock.unfreeze()
        expected = state_of_tokens(advances, *of_advances)
        good_s = {name: seconds for name, (seconds, *_) in expected.items() if seconds is not None}
        assert good_s == TOKENS_THAT_STAY
        # A session ends when its token was to end as it began.
        assert not any(served for *_, served in expected.values())
        waits.clock.unfreeze()
        deadline = time.monotonic() + PATIENCE_S
        while (state := state_of_tokens(waits, *of_waits)) != expected:
            assert time.monotonic() < deadline, (state, expected)
        for client in (*of_waits[1].values(), *of_advances[1].values()):
            client.close()
