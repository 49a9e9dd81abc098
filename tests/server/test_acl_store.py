"""ACLs in the metadata log: they are there after a start, and none gets lost without a word."""

import asyncio
import io
import shutil

import pytest

from odradek.config.broker_config import STANDARD_AUTHORIZER, ConfigError, load
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.security.acls import Acl, AclRules
from odradek.offline.check import check
from odradek.server.broker import BrokerServer
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.server.metadata.metadata_log import DiskMetadataLog
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish
from tests.kit.data_directories import controller_of

READ, WRITE, ALLOW, DENY = Operation.READ, Operation.WRITE, Permission.ALLOW, Permission.DENY
ALLOWED = Acl(ResourceType.TOPIC, "a/b c", PatternType.LITERAL, "User:älice", "*", READ, ALLOW)
DENIED = ALLOWED._replace(operation=WRITE, permission=DENY)
MAY_BE_LOST = "ACLs or users may be lost"
GIVEN_UP = "ACLs and users may be lost"


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
    with controller_of(directory) as controller:
        assert [one.error for one in controller.create_topics([NewTopic("t", 1, 1)])] == [None]
        change(controller, {b"1" * 16: ALLOWED, b"2" * 16: DENIED})
        # The last batch of a log may be torn, and is cut then.
        controller.allocate_producer_ids()
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


def damage(directory, text):
    """Three wrong bits in the batch that has the text first."""
    path = segment(directory)
    content = bytearray(path.read_bytes())
    at = content.index(text)
    for place in range(at, at + 3):
        content[place] ^= 1
    path.write_bytes(content)


def segment(directory):
    (path,) = (directory / METADATA_LOG).glob("*.log")
    return path


def checked(directory, *, repair=False):
    out = io.StringIO()
    check([str(directory)], repair=repair, out=out)
    return out.getvalue()


def test_rules_are_there_after_a_start_and_a_change_counts_when_it_is_stored(data):
    with controller_of(data) as controller:
        assert controller.view.acls.by_id == {b"1" * 16: ALLOWED, b"2" * 16: DENIED}
        before = controller.view
        other = ALLOWED._replace(name="other")
        change(controller, {b"3" * 16: other}, [b"1" * 16])
        assert controller.view.version == before.version + 1
        assert controller.view.acls.version > before.acls.version
        assert before.acls.by_id == {b"1" * 16: ALLOWED, b"2" * 16: DENIED}
    assert start(data).by_id == {b"2" * 16: DENIED, b"3" * 16: other}


def test_a_change_that_cannot_be_stored_changes_nothing(data, monkeypatch):
    def full(self, records, metadata_version):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        yield None

    with controller_of(data) as controller:
        before = controller.view
        monkeypatch.setattr(DiskMetadataLog, "appending", full)
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            change(controller, {}, [b"1" * 16])
        assert controller.view is before


def test_without_rules_the_view_has_none_and_the_last_one_leaves_none(data):
    with controller_of(data) as controller:
        change(controller, {}, [b"1" * 16, b"2" * 16])
        assert len(controller.view.acls) == 0
    assert start(data) is None


def test_with_an_authorizer_no_start_goes_on_without_the_record_of_a_rule(data):
    damage(data, "User:älice".encode())
    with pytest.raises(ConfigError, match=MAY_BE_LOST):
        start(data, authorizer_class_name=STANDARD_AUTHORIZER)


def test_a_start_is_refused_where_a_rule_may_be_lost_until_an_administrator_gives_it_up(data):
    sound = segment(data).read_bytes()
    damage(data, b"group.version")
    damaged = segment(data).read_bytes()
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"damaged in .*, and {MAY_BE_LOST}"):
            start(data)
        assert segment(data).read_bytes() == damaged
    assert f"unless {MAY_BE_LOST}" in checked(data)
    assert GIVEN_UP in checked(data, repair=True)
    kept = start(data) or AclRules()
    assert set(kept.by_id.values()) <= {ALLOWED, DENIED}
    assert MAY_BE_LOST not in checked(data)
    shutil.rmtree(data / METADATA_LOG)
    (data / f"{METADATA_LOG}.0.damaged").rename(data / METADATA_LOG)
    segment(data).write_bytes(sound)
    assert set(start(data).by_id.values()) == {ALLOWED, DENIED}


def test_one_flipped_bit_of_a_rule_is_mended(data):
    content = bytearray(segment(data).read_bytes())
    content[content.index(b"User:") + 2] ^= 1
    segment(data).write_bytes(content)
    assert set(start(data).by_id.values()) == {ALLOWED, DENIED}


def test_with_an_authorizer_no_start_goes_on_without_records_that_cannot_be_read(tmp_path):
    """Although nothing says that there were ACLs."""
    start(tmp_path)
    with controller_of(tmp_path) as controller:
        assert [one.error for one in controller.create_topics([NewTopic("topic-t", 1, 1)])] == [None]
        controller.allocate_producer_ids()
    damage(tmp_path, b"topic-t")
    with pytest.raises(ConfigError, match=MAY_BE_LOST):
        start(tmp_path, authorizer_class_name=STANDARD_AUTHORIZER)
    assert start(tmp_path) is None
