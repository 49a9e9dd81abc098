"""Settings changed in part: what IncrementalAlterConfigs makes of those that there are."""

import pytest

from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT, ConfigOperation, changed
from odradek.config.options import TOPIC_OPTIONS
from odradek.wire.errors import ErrorCode, KafkaError


def after(configs, *operations):
    return changed(configs, [ConfigOperation(*one) for one in operations], TOPIC_OPTIONS)


def test_settings_are_set_and_deleted_and_the_rest_stays():
    before = {"retention.ms": "1", "segment.ms": "2"}
    assert after(before, ("retention.ms", SET, "3"), ("segment.ms", DELETE, None)) == {"retention.ms": "3"}
    assert before == {"retention.ms": "1", "segment.ms": "2"}


def test_what_is_not_set_can_be_deleted_even_if_nobody_knows_it():
    assert after({}, ("retention.ms", DELETE, None), ("no.such", DELETE, "ignored")) == {}


@pytest.mark.parametrize(
    ("before", "kind", "value", "result"),
    [
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact,delete", APPEND, "delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact,delete", SUBTRACT, "compact,delete", ""),
        ("compact", SUBTRACT, "delete", "compact"),
        (None, APPEND, "compact", "delete,compact"),
        (None, SUBTRACT, "delete", ""),
        ("", APPEND, "compact", "compact"),
    ],
)
def test_lists_grow_and_shrink_from_what_is_set_or_kafkas_default(before, kind, value, result):
    configs = {} if before is None else {"cleanup.policy": before}
    assert after(configs, ("cleanup.policy", kind, value)) == {"cleanup.policy": result}


@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
@pytest.mark.parametrize("kind", [APPEND, SUBTRACT])
def test_only_lists_grow_and_shrink(name, kind):
    with pytest.raises(KafkaError) as caught:
        after({}, (name, kind, "1"))
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert name in caught.value.message
