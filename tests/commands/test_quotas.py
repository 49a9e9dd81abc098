"""`odradek quotas` at a broker of ours; compat_tests has the same at others."""

import json

import pytest


@pytest.fixture
def quotas(odradek_command):
    """Without quotas at first."""
    for row in odradek_command("quotas", "list", "--output", "json").rows:
        names = []
        for kind, name in row["entity"].items():
            names += [f"--{kind}-defaults"] if name is None else [f"--{kind}", name]
        assert odradek_command("quotas", "remove", row["key"], *names).status == 0
    return lambda *arguments: odradek_command("quotas", *arguments)


def listed(quotas, *arguments):
    rows = quotas("list", *arguments, "--output", "json").rows
    return [(row["entity"], row["key"], row["value"]) for row in rows]


def test_quotas_of_each_kind_of_entity(quotas):
    assert quotas("list").out == "no quotas\n"
    for arguments in (
        ("producer_byte_rate=1024", "request_percentage=12.5", "--user", "ann b"),
        ("consumer_byte_rate=2048", "--user", "ann b", "--client-id-defaults"),
        ("consumer_byte_rate=4096", "--user-defaults", "--client-id", "shop"),
        ("connection_creation_rate=5", "--ip-defaults"),
        ("connection_creation_rate=6", "--ip", "192.0.2.7"),
    ):
        assert quotas("set", *arguments).status == 0
    assert listed(quotas) == [
        ({"ip": None}, "connection_creation_rate", 5),
        ({"ip": "192.0.2.7"}, "connection_creation_rate", 6),
        ({"user": None, "client-id": "shop"}, "consumer_byte_rate", 4096),
        ({"user": "ann b"}, "producer_byte_rate", 1024),
        ({"user": "ann b"}, "request_percentage", 12.5),
        ({"user": "ann b", "client-id": None}, "consumer_byte_rate", 2048),
    ]
    assert [row[0] for row in listed(quotas, "--user-defaults")] == [{"user": None, "client-id": "shop"}]
    assert [row[0] for row in listed(quotas, "--ip", "192.0.2.7")] == [{"ip": "192.0.2.7"}]
    assert len(listed(quotas, "--user", "ann b")) == 3
    table = quotas("list", "--user", "ann b").out.splitlines()
    assert table[-1].split("  ")[0] == "user=ann b client-id=<default>"
    assert json.loads(
        quotas("list", "--ip-defaults", "--output", "tsv").out.splitlines()[1].split("\t")[0]
    ) == {"ip": None}


def test_a_change_shows_before_and_after_and_can_be_tried(quotas):
    (row,) = quotas("set", "producer_byte_rate=1000", "--user", "ann", "--dry-run", "--output", "json").rows
    assert (row["value_before"], row["value"], listed(quotas)) == (None, 1000, [])
    quotas("set", "producer_byte_rate=1000", "--user", "ann")
    (row,) = quotas("set", "producer_byte_rate=2000", "--user", "ann", "--output", "json").rows
    assert row == {
        "entity": {"user": "ann"},
        "key": "producer_byte_rate",
        "value_before": 1000,
        "value": 2000,
    }
    refused = quotas("set", "no_such_rate=1", "--user", "ann", "--dry-run")
    assert refused.status == 1
    assert refused.err.startswith("odradek: changing quotas was refused: INVALID_REQUEST (")


def test_a_removal_is_of_the_very_entity(quotas):
    quotas("set", "producer_byte_rate=1", "consumer_byte_rate=2", "request_percentage=3", "--user", "ann")
    quotas("set", "producer_byte_rate=4", "--user", "ann", "--client-id", "c")
    (row,) = quotas("remove", "request_percentage", "--user", "ann", "--output", "json").rows
    assert (row["value_before"], row["value"]) == (3, None)
    planned = quotas("remove", "--user", "ann", "--dry-run", "--output", "json").rows
    assert [row["key"] for row in planned] == ["consumer_byte_rate", "producer_byte_rate"]
    assert len(listed(quotas)) == 3
    assert quotas("remove", "--user", "ann", "--output", "json").rows == planned
    assert listed(quotas) == [({"user": "ann", "client-id": "c"}, "producer_byte_rate", 4)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set", "producer_byte_rate=1"], "whose quotas: give --user, --client-id or --ip"),
        (["set", "producer_byte_rate", "--user", "a"], "producer_byte_rate is not KEY=VALUE with a number"),
        (["set", "producer_byte_rate=nan", "--user", "a"], "producer_byte_rate=nan is not KEY=VALUE"),
        (["set", "producer_byte_rate=1MB", "--user", "a"], "producer_byte_rate=1MB is not KEY=VALUE"),
        (
            ["set", "producer_byte_rate=1", "--user", ""],
            "the name of a user, a client or an address is empty",
        ),
        (["set", "producer_byte_rate=1", "--user", "a", "--ip", "192.0.2.1"], "listing quotas was refused"),
        (["remove", "--user", "nobody"], "user=nobody has no quota"),
        (
            ["remove", "request_percentage", "--user-defaults"],
            "user=<default> has no quota request_percentage",
        ),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(quotas, arguments, sentence):
    ended = quotas(*arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_name_and_the_default_are_two_entities(quotas):
    assert quotas("list", "--user", "a", "--user-defaults").status == 2
