"""ACLs in the metadata store: they are there after a start, and none gets lost without a word."""

import asyncio
import io
import itertools
import json
import sqlite3

import pytest

from odradek.config.broker_config import STANDARD_AUTHORIZER, ConfigError, load
from odradek.coordinator.cluster.machine import ClusterMachine, Row
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import Broker
from odradek.coordinator.security.acls import Acl, AclRules
from odradek.offline.check import check
from odradek.offline.dump import dump
from odradek.server.broker import BrokerServer
from odradek.server.metadata.metadata_store import FILE_NAME, SqliteMetadataStore
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish

READ, WRITE, ALLOW, DENY = Operation.READ, Operation.WRITE, Permission.ALLOW, Permission.DENY
ALLOWED = Acl(ResourceType.TOPIC, "a/b c", PatternType.LITERAL, "User:älice", "*", READ, ALLOW)
DENIED = ALLOWED._replace(operation=WRITE, permission=DENY)
MAY_BE_LOST = "ACLs or users may be lost"
GIVEN_UP = "ACLs and users may be lost"


def opened(directory):
    ids = itertools.count(1)
    store = SqliteMetadataStore(str(directory / FILE_NAME))
    machine = ClusterMachine(store, cluster_id="c", new_topic_id=lambda: next(ids).to_bytes(16, "big"))
    machine.load()
    machine.register_broker(Broker(1, {}))
    return store, machine


def change(machine, added=(), removed=()):
    def edit(draft):
        yield from ()
        draft.change_acls(dict(added), removed)

    finish(machine.changing(edit))


@pytest.fixture
def data(tmp_path):
    """A directory with a topic and two rules, of a broker that has been stopped."""
    directory = tmp_path / "data"

    async def serve():
        server = BrokerServer(load(listen="127.0.0.1:0", data_dir=str(directory)))
        await server.start()
        await server.stop()

    asyncio.run(serve())
    store, machine = opened(directory)
    assert [one.error for one in machine.create_topics([NewTopic("t", 1, 1)])] == [None]
    change(machine, {b"1" * 16: ALLOWED, b"2" * 16: DENIED})
    store.close()
    return directory


def start(directory, **options):
    """The rules that a start finds."""
    keywords = {name.replace("_", "."): value for name, value in options.items()}

    async def serve():
        server = BrokerServer(load(listen="127.0.0.1:0", data_dir=str(directory), keywords=keywords))
        await server.start()
        try:
            return server.plane.view.acls
        finally:
            await server.stop()

    return asyncio.run(serve())


def execute(directory, statement, *values):
    connection = sqlite3.connect(directory / FILE_NAME)
    assert connection.execute(statement, values).rowcount > 0
    connection.commit()
    connection.close()


def damage(directory, kind="acl"):
    execute(directory, "UPDATE facts SET value = value || 'xyz' WHERE kind = ?", kind)


def checked(directory, *, repair=False):
    out = io.StringIO()
    check([str(directory)], repair=repair, out=out)
    return out.getvalue()


def test_rules_are_there_after_a_start_and_a_change_counts_when_it_is_stored(data):
    store, machine = opened(data)
    assert machine.view.acls.by_id == {b"1" * 16: ALLOWED, b"2" * 16: DENIED}
    before = machine.view
    other = ALLOWED._replace(name="other")
    change(machine, {b"3" * 16: other}, [b"1" * 16])
    assert machine.view.version == before.version + 1
    assert machine.view.acls.version > before.acls.version
    assert before.acls.by_id == {b"1" * 16: ALLOWED, b"2" * 16: DENIED}
    store.close()
    assert start(data).by_id == {b"2" * 16: DENIED, b"3" * 16: other}


def test_a_change_that_cannot_be_stored_changes_nothing(data, monkeypatch):
    store, machine = opened(data)
    before = machine.view

    def full(rows):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(store, "writing", full)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        change(machine, {}, [b"1" * 16])
    assert machine.view is before
    store.close()


def test_without_rules_the_view_has_none_and_the_last_one_leaves_none(data):
    store, machine = opened(data)
    change(machine, {}, [b"1" * 16, b"2" * 16])
    assert len(machine.view.acls) == 0
    store.close()
    assert start(data) is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET value = value || 'xyz' WHERE kind = 'acl'",
        "UPDATE facts SET value = 'xyz' || value WHERE kind = 'topic'",
        "DELETE FROM facts WHERE kind = 'acl' AND value LIKE '%, 2]'",
        "DELETE FROM facts WHERE kind = 'acl'",
        "DELETE FROM facts WHERE key = 'acl_count'",
    ],
)
def test_a_start_is_refused_where_a_rule_may_be_lost_until_an_administrator_gives_it_up(data, statement):
    content = (data / FILE_NAME).read_bytes()
    execute(data, statement)
    damaged = (data / FILE_NAME).read_bytes()
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"{FILE_NAME} is damaged, and {MAY_BE_LOST}"):
            start(data)
        assert (data / FILE_NAME).read_bytes() == damaged
    assert f"{MAY_BE_LOST}, so that a start is refused" in checked(data)
    assert GIVEN_UP in checked(data, repair=True)
    kept = start(data) or AclRules()
    assert set(kept.by_id.values()) <= {ALLOWED, DENIED}
    assert MAY_BE_LOST not in checked(data)
    (data / FILE_NAME).write_bytes(content)
    assert set(start(data).by_id.values()) == {ALLOWED, DENIED}


def test_one_flipped_bit_of_a_rule_is_mended(data):
    content = bytearray((data / FILE_NAME).read_bytes())
    content[content.index(b"User:") + 2] ^= 1
    (data / FILE_NAME).write_bytes(content)
    assert set(start(data).by_id.values()) == {ALLOWED, DENIED}


def test_a_row_that_is_sound_and_no_rule_stops_the_start(data):
    store = SqliteMetadataStore(str(data / FILE_NAME))
    store.write(
        [Row("acl", "33" * 16, '[99, "x", 3, "User:a", "*", 3, 3]'), Row("cluster", "acl_count", "3")]
    )
    store.close()
    with pytest.raises(ConfigError, match=MAY_BE_LOST):
        start(data)
    assert GIVEN_UP in checked(data, repair=True)
    assert set(start(data).by_id.values()) == {ALLOWED, DENIED}


def test_with_an_authorizer_no_start_goes_on_without_rows_that_cannot_be_read(tmp_path):
    """Although nothing says that there were ACLs."""
    start(tmp_path)
    store, machine = opened(tmp_path)
    assert [one.error for one in machine.create_topics([NewTopic("t", 1, 1)])] == [None]
    store.close()
    damage(tmp_path, "topic")
    with pytest.raises(ConfigError, match=MAY_BE_LOST):
        start(tmp_path, authorizer_class_name=STANDARD_AUTHORIZER)
    assert start(tmp_path) is None


def test_rules_are_dumped_with_names(data):
    out = io.StringIO()
    dump([str(data / FILE_NAME)], records=False, as_json=True, out=out)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    (told,) = [one for one in found if one.get("table") == "acl" and one["permission"] == "DENY"]
    assert {name: told[name] for name in Acl._fields} == {
        "resource_type": "TOPIC",
        "name": "a/b c",
        "pattern_type": "LITERAL",
        "principal": "User:älice",
        "host": "*",
        "operation": "WRITE",
        "permission": "DENY",
    }
