"""A broker whose clock was advanced has the state of one that has really waited."""

import time

import pytest

import odradek
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
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "producer.id.expiration.ms": 900,
    "producer.id.expiration.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.flush.scheduler.interval.ms": 100,
    "transactional.id.expiration.ms": 1_500,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}


def act(client, broker):
    """A bit of all, in no time: the clock stands still."""
    now_ms = broker.clock.now_ms
    client.create(retention_ms=700, file_delete_delay_ms=500)
    client.create("open", retention_ms=600_000)
    client.create("squeezed", cleanup_policy="compact", min_cleanable_dirty_ratio=0, delete_retention_ms=0)
    client.configure_group("s", **{"share.auto.offset.reset": "earliest"})
    client.produce((b"k", b"old"), timestamp_ms=now_ms)
    broker.roll("t")
    client.produce((b"k", b"kept"), timestamp_ms=now_ms + 600_000)
    client.produce((b"k", b"v"), name="open", producer_id=77, producer_epoch=0, base_sequence=0)
    client.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), name="squeezed")
    broker.roll("squeezed")
    joined = client.join("classic", session_ms=400, rebalance_ms=500)
    client.sync(joined, "classic")
    client.commit(1, joined, "classic")
    client.beat("consumer", "m")
    client.share_beat("s", "m")
    client.share_fetch_some()
    client.begin("tx", timeout_ms=500)


def state_of(client):
    """Everything that people can ask a broker for."""
    described = client.described("classic")
    return {
        "groups": {name: client.group_state(name) for name in ("classic", "consumer", "s")},
        "members": (len(described.members), client.consumer_members("consumer"), client.share_members("s")),
        "committed": client.committed("classic"),
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
        advances.clock.advance(seconds=4)
        expected = state_of(of_advances)
        assert expected["groups"] == {"classic": "Empty", "consumer": "Empty", "s": "Empty"}
        assert expected["transaction"] is None
        assert (expected["starts"]["t"], expected["producers"]) == (1, [])
        assert expected["squeezed"] == [(b"b", b"1"), (b"a", b"2")]
        expected_files, expected_share = files(advances), of_advances.share_fetch(0, member_id="other")
        waits.clock.unfreeze()
        deadline = time.monotonic() + PATIENCE_S
        while state_of(of_waits) != expected or files(waits) != expected_files:
            assert time.monotonic() < deadline, (state_of(of_waits), expected, files(waits), expected_files)
        assert of_waits.share_fetch(0, member_id="other") == expected_share
