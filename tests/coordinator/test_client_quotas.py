"""Eight levels, filters, and what may be set. `compat_tests/differential/test_client_quotas.py` asks Kafka
the same."""

import itertools
import math

import pytest

from odradek.coordinator.security.client_quotas import QuotaLevels, altered, described, hosts_of
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_client_quotas import EntityData, EntryData, OpData
from odradek.wire.messages.describe_client_quotas import ComponentData

RATE = "producer_byte_rate"
USER, CLIENT = "alice", "c"
IP = (("ip", None),)
LEVELS = [
    (("client-id", CLIENT), ("user", USER)),
    (("client-id", None), ("user", USER)),
    (("user", USER),),
    (("client-id", CLIENT), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", CLIENT),),
    (("client-id", None),),
]
"""The strongest first."""


@pytest.mark.parametrize("count", range(1, 9))
def test_the_first_of_eight_levels_counts(count):
    for chosen in itertools.combinations(range(8), count):
        levels = QuotaLevels({LEVELS[level]: {RATE: level + 1.0} for level in chosen}, RATE)
        whose, value = levels.find(USER, CLIENT)
        assert value == chosen[0] + 1
        types = [kind for kind, _ in LEVELS[chosen[0]]]
        assert whose == (USER if "user" in types else "", CLIENT if "client-id" in types else "")


def test_a_client_without_an_id_has_the_quotas_of_its_user_alone():
    quotas = {entity: {RATE: float(level)} for level, entity in enumerate(LEVELS, 1)}
    assert QuotaLevels(quotas, RATE).find(USER, "") == ((USER, ""), 3)
    assert QuotaLevels(quotas, RATE).find("bob", "") == (("bob", ""), 6)
    of_clients = {entity: values for entity, values in quotas.items() if "user" not in dict(entity)}
    assert QuotaLevels(of_clients, RATE).find(USER, "") is None


def test_others_quotas_do_not_count():
    quotas = {
        (("user", "bob"),): {RATE: 1.0},
        (("client-id", "d"),): {RATE: 2.0},
        (("ip", None),): {RATE: 3.0},
    }
    assert QuotaLevels(quotas, RATE).find(USER, CLIENT) is None
    assert not QuotaLevels({(("user", USER),): {"consumer_byte_rate": 1.0}}, RATE)


def test_whose_use_is_measured_together_has_the_value_of_its_level():
    levels = QuotaLevels({(("user", None),): {RATE: 5.0}, (("client-id", CLIENT),): {RATE: 7.0}}, RATE)
    assert levels.value_of((USER, "")) == 5
    assert levels.value_of(("", CLIENT)) == 7
    assert levels.value_of((USER, CLIENT)) is None


# Description

QUOTAS = {
    (("client-id", "c"), ("user", "alice")): {RATE: 1.0},
    (("user", "alice"),): {RATE: 2.0},
    (("user", None),): {RATE: 3.0},
    (("client-id", "c"),): {RATE: 4.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
}
EXACT, DEFAULT, ANY = 0, 1, 2


def found(*components, strict=False):
    asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    quotas = described(QUOTAS, asked, strict=strict)
    return sorted(next(iter(values.values())) for values in quotas.values())


@pytest.mark.parametrize(
    ("components", "loose", "strict"),
    [
        ([], [1, 2, 3, 4, 5], []),
        ([("user", EXACT, "alice")], [1, 2], [2]),
        ([("user", DEFAULT, None)], [3], [3]),
        ([("user", ANY, None)], [1, 2, 3], [2, 3]),
        ([("client-id", ANY, None)], [1, 4], [4]),
        ([("user", EXACT, "alice"), ("client-id", EXACT, "c")], [1], [1]),
        ([("user", ANY, None), ("client-id", DEFAULT, None)], [], []),
        ([("ip", ANY, None)], [5], [5]),
        ([("ip", DEFAULT, None)], [], []),
    ],
)
def test_a_filter_finds_entities(components, loose, strict):
    assert found(*components) == loose
    assert found(*components, strict=True) == strict


# Alteration


def entry(entity, **ops):
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def alter(*entries, quotas=QUOTAS, is_host=lambda name: True):
    return altered(quotas, entries, lambda name: None if is_host(name) else f"{name} is none")


def test_an_alteration_keeps_the_other_quotas_of_its_entity():
    result = alter(entry([("user", "alice")], consumer_byte_rate=9.0))
    assert result.changed == {(("user", "alice"),): {RATE: 2.0, "consumer_byte_rate": 9.0}}
    assert result.refusals == {(("user", "alice"),): None}


def test_the_last_quota_that_is_removed_leaves_nothing():
    assert alter(entry([("user", "alice")], producer_byte_rate=None)).changed == {(("user", "alice"),): {}}


def test_what_is_so_already_is_no_change():
    same = entry([("client-id", "c"), ("user", "alice")], producer_byte_rate=1.0)
    result = alter(same, entry([("user", "bob")], producer_byte_rate=None))
    assert (result.changed, set(result.refusals.values())) == ({}, {None})


def test_one_refused_entity_does_not_hinder_the_others():
    result = alter(
        entry([("user", "x")], producer_byte_rate=0.5), entry([("user", "y")], producer_byte_rate=5.0)
    )
    assert list(result.changed) == [(("user", "y"),)]
    assert [one and one.code for one in result.refusals.values()] == [ErrorCode.INVALID_REQUEST, None]


def test_an_entity_that_is_there_twice_is_refused_and_its_first_entry_counts():
    result = alter(
        entry([("user", "x")], producer_byte_rate=5.0), entry([("user", "x")], producer_byte_rate=6.0)
    )
    assert result.changed == {(("user", "x"),): {RATE: 5.0}}
    assert result.refusals[("user", "x"),].code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 1e19, math.inf, math.nan])
def test_a_rate_of_bytes_is_a_whole_number_above_zero(value):
    ops = [OpData(key=RATE, value=value, remove=False)]
    result = alter(EntryData(entity=entry([("user", "x")]).entity, ops=ops))
    assert result.changed == {}
    (refusal,) = result.refusals.values()
    assert refusal is not None


def test_names_of_hosts_have_to_be_known():
    asked = [
        entry([("ip", "nowhere")], connection_creation_rate=5.0),
        entry([("ip", None)], connection_creation_rate=5.0),
    ]
    assert hosts_of(asked * 2) == ["nowhere"]
    result = alter(*asked, is_host=lambda name: name != "nowhere")
    refusal = result.refusals[("ip", "nowhere"),]
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, "nowhere is none")
    assert list(result.changed) == [IP]


def test_a_filter_without_sense_is_refused():
    for components, code in (
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as refused:
            found(*components)
        assert refused.value.code is code
