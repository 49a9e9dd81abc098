"""The name that somebody meant."""

from odradek.config.near_names import did_you_mean, nearest
from odradek.config.options import BROKER_OPTIONS


def test_a_misspelt_name_finds_the_nearest_one():
    assert nearest("log.retention.hour", BROKER_OPTIONS) == "log.retention.hours"
    assert nearest("auto.create.topic.enabled", BROKER_OPTIONS) == "auto.create.topics.enable"
    assert nearest("zzz", BROKER_OPTIONS) is None


def test_the_nearest_name_ends_a_sentence():
    assert f"there is no command topcs{did_you_mean('topcs', ['topics', 'groups'])}" == (
        "there is no command topcs; did you mean topics?"
    )
    assert did_you_mean("zzz", ["topics"]) == ""
