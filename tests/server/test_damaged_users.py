"""Users are not lost silently: metadata that may have lost some stop the start."""

import pytest

from odradek import Broker, BrokerStartError
from odradek.commands.main import main
from odradek.config.broker_config import load
from odradek.config.first_users import checked_user
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.server.security.stopped_users import add
from tests.raw_client import RawClient
from tests.server.test_sasl_listener import OPTIONS, log_in_with_scram


@pytest.fixture
def directory(tmp_path):
    with Broker(data_dir=tmp_path):
        pass
    for name in ("ann", "bob"):
        add(load(data_dir=tmp_path), checked_user(name, "SCRAM-SHA-256", "pw"))
    return tmp_path


def damage(directory, text, bits=3):
    (path,) = (directory / METADATA_LOG).glob("*.log")
    content = bytearray(path.read_bytes())
    at = content.index(text)
    for place in range(at, at + bits):
        content[place] ^= 1
    path.write_bytes(content)


def logs_in(directory, name):
    with Broker(options=OPTIONS, data_dir=directory) as broker, RawClient(broker.port) as client:
        return log_in_with_scram(client, "SCRAM-SHA-256", name, "pw") == 0


def test_a_damaged_record_of_a_user_stops_the_start(directory, capsys):
    damage(directory, b"ann")
    for _ in range(2):
        with pytest.raises(BrokerStartError, match=r"is damaged in .*, and ACLs or users may be lost"):
            Broker(options=OPTIONS, data_dir=directory).start()
    assert main(["check", "--repair", str(directory)]) == 0
    assert "0 ACLs and 1 credentials of users could be read" in capsys.readouterr().out
    assert logs_in(directory, "bob")
    assert not logs_in(directory, "ann")


def test_a_flipped_bit_of_a_user_is_mended(directory):
    damage(directory, b"ann", bits=1)
    assert logs_in(directory, "ann")


def test_another_damaged_record_is_repaired_where_there_are_no_users(tmp_path):
    with Broker(data_dir=tmp_path):
        pass
    damage(tmp_path, b"group.version")
    with Broker(data_dir=tmp_path) as broker:
        assert broker.is_running


def test_another_damaged_record_may_have_been_a_user_where_there_are_some(directory):
    damage(directory, b"group.version")
    with pytest.raises(BrokerStartError, match="may be lost"):
        Broker(data_dir=directory).start()
