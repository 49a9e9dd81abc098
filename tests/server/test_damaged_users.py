"""Users are not lost silently: metadata that may have lost some stop the start."""

import sqlite3

import pytest

from odradek import Broker, BrokerStartError
from odradek.commands.main import main
from odradek.config.broker_config import load
from odradek.config.first_users import checked_user
from odradek.server.metadata.metadata_store import FILE_NAME, checksum
from odradek.server.security.users import add
from tests.raw_client import RawClient
from tests.server.test_sasl_listener import OPTIONS, log_in_with_scram


@pytest.fixture
def directory(tmp_path):
    with Broker(data_dir=tmp_path):
        pass
    for name in ("ann", "bob"):
        add(load(data_dir=tmp_path), checked_user(name, "SCRAM-SHA-256", "pw"))
    return tmp_path


def change(directory, statement, *values):
    connection = sqlite3.connect(directory / FILE_NAME)
    with connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


def logs_in(directory, name):
    with Broker(options=OPTIONS, data_dir=directory) as broker, RawClient(broker.port) as client:
        return log_in_with_scram(client, "SCRAM-SHA-256", name, "pw") == 0


@pytest.mark.parametrize("column", ["value", "key"])
def test_a_damaged_row_of_a_user_stops_the_start(directory, column, capsys):
    damage = f"UPDATE facts SET {column} = 'damaged beyond repair' WHERE kind = 'scram' AND key LIKE '%ann'"
    change(directory, damage)
    for _ in range(2):
        with pytest.raises(BrokerStartError, match=r"damaged, and ACLs or users may be lost"):
            Broker(options=OPTIONS, data_dir=directory).start()
    assert main(["check", "--repair", str(directory)]) == 0
    assert "0 ACLs and 1 credentials of users could be read" in capsys.readouterr().out
    assert logs_in(directory, "bob")
    assert not logs_in(directory, "ann")


def test_a_flipped_bit_of_a_user_is_mended(directory):
    (value,) = (
        sqlite3.connect(directory / FILE_NAME)
        .execute("SELECT value FROM facts WHERE key LIKE '%ann'")
        .fetchone()
    )
    flipped = chr(ord(value[0]) ^ 1) + value[1:]
    change(directory, "UPDATE facts SET value = ? WHERE kind = 'scram' AND key LIKE '%ann'", flipped)
    assert logs_in(directory, "ann")


def test_a_row_that_is_sound_and_makes_no_user_stops_the_start_with_a_sentence(directory):
    key = "SCRAM-SHA-256/ann"
    change(
        directory,
        "UPDATE facts SET value = 'x', crc = ? WHERE kind = 'scram' AND key = ?",
        checksum("scram", key, "x"),
        key,
    )
    with pytest.raises(BrokerStartError, match="may be lost"):
        Broker(options=OPTIONS, data_dir=directory).start()


def test_another_damaged_row_is_repaired_where_there_are_no_users(tmp_path):
    with Broker(data_dir=tmp_path):
        pass
    change(tmp_path, "UPDATE facts SET value = 'damaged beyond repair' WHERE key = 'features_epoch'")
    with Broker(data_dir=tmp_path) as broker:
        assert broker.is_running


def test_another_damaged_row_may_have_been_a_user_where_there_are_some(directory):
    change(directory, "UPDATE facts SET value = 'damaged beyond repair' WHERE key = 'features_epoch'")
    with pytest.raises(BrokerStartError, match="may be lost"):
        Broker(data_dir=directory).start()
