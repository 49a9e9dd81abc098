"""The log of what changes something."""

import logging

import pytest

import odradek
from odradek.apis.table import MODULES, declared
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.wire.messages import api_name
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from tests.raw_client import RawClient

LOGGER = "odradek.audit"


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker() as one:
        yield one


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def new_topic(name):
    config = CreatableTopicConfig(name="retention.ms", value="12345678")
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config], assignments=[])


def test_a_change_is_told_with_its_names_and_without_its_values(broker, caplog):
    upsertion = ScramCredentialUpsertion(
        name="ann", mechanism=1, iterations=4096, salt=b"salt-of-ann", salted_password=b"password-of-ann"
    )
    with caplog.at_level(logging.DEBUG, LOGGER), RawClient(broker.port) as client:
        client.ask(CreateTopicsRequest(topics=[new_topic("orders"), new_topic("bills")], timeout_ms=9000), 5)
        client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        client.ask(DeleteGroupsRequest(groups_names=["g"]), 1)
    first, second, third = told(caplog)
    assert first.startswith("User:ANONYMOUS at 127.0.0.1:")
    assert first.endswith("with unknown unknown: CreateTopics of 'orders', 'retention.ms', 'bills'")
    assert second.endswith(": AlterUserScramCredentials of 'ann'")
    assert third.endswith(": DeleteGroups of 'g'")
    for secret in ("12345678", "salt", "password"):
        assert secret not in caplog.text


def test_a_line_has_a_bound_and_no_control_characters(broker, caplog):
    names = [f"{'x' * 300}{number}" for number in range(25)]
    with caplog.at_level(logging.DEBUG, LOGGER), RawClient(broker.port) as client:
        client.ask(DeleteGroupsRequest(groups_names=names), 1)
        client.ask(DeleteGroupsRequest(groups_names=["a\nforged line\x1b[31m"]), 1)
    long, forged = told(caplog)
    assert len(long) < 6000
    assert "\n" not in forged
    assert "\x1b" not in forged


def test_what_only_asks_is_not_told_nor_anything_by_default(broker, caplog):
    with caplog.at_level(logging.INFO), RawClient(broker.port) as client:
        client.ask(CreateTopicsRequest(topics=[new_topic("quiet")], timeout_ms=9000), 5)
    with (
        caplog.at_level(logging.DEBUG, LOGGER),
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        cluster.topics()
    assert told(caplog) == []


def test_every_api_that_changes_something_is_declared_so():
    beginnings = (
        "Alter",
        "Create",
        "Delete",
        "Elect",
        "Expire",
        "IncrementalAlter",
        "OffsetDelete",
        "Renew",
        "Update",
    )
    found = {key for key in MODULES if api_name(key).startswith(beginnings)}
    among_brokers = {86}
    of_share_groups = {91, 92}
    changing = {key for key in MODULES if declared(key).changes}
    assert found - among_brokers - of_share_groups == changing
