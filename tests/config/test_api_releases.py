"""The last versions of APIs: those of releases, and those that somebody asks for."""

import pytest

from odradek.apis.table import MODULES
from odradek.config.api_releases import (
    RELEASES,
    broker_api_names,
    emulated_release,
    last_versions,
)
from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.wire.messages import api_name, versions_of

FETCH, PRODUCE, SHARE_FETCH = 1, 0, 78


def test_each_api_that_brokers_serve_is_in_the_table():
    assert broker_api_names() == [api_name(key) for key in sorted(MODULES)]


def test_the_newest_release_has_all_that_is_served():
    assert last_versions(None, RELEASES[-1]) == {key: versions_of(key)[-1] for key in sorted(MODULES)}


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_has_more_than_is_served(release):
    for key, last in last_versions(None, release).items():
        assert last == -1 or last in versions_of(key), api_name(key)


def test_a_release_knows_no_api_of_later_ones():
    assert last_versions(None, "2.4")[SHARE_FETCH] == -1
    assert last_versions(None, "4.1")[SHARE_FETCH] == 1


def test_versions_are_asked_for_by_the_names_of_apis():
    assert last_versions("Fetch=11, Produce=7", None) == {FETCH: 11, PRODUCE: 7}


def test_the_lower_one_of_a_release_and_what_is_asked_for_holds():
    asked = last_versions("Fetch=11,Produce=13", "2.7")
    assert (asked[FETCH], asked[PRODUCE]) == (11, 8)


def test_a_release_may_be_named_with_its_patch():
    assert [emulated_release(text) for text in ("3.9", "3.9.2", "", None)] == ["3.9", "3.9", None, None]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"odradek.max.versions": "Fetch=99"},
            "odradek.max.versions: Fetch=99 is not served; its versions are 0 to 18.",
        ),
        (
            {"odradek.max.versions": "ShareFetch=0"},
            "odradek.max.versions: ShareFetch=0 is not served; its versions are 1 to 2.",
        ),
        (
            {"odradek.max.versions": "Fetsh=1"},
            "odradek.max.versions: brokers have no API 'Fetsh'; did you mean Fetch?",
        ),
        (
            {"odradek.max.versions": "Envelope=0"},
            "odradek.max.versions: brokers have no API 'Envelope'.",
        ),
        (
            {"odradek.max.versions": "Fetch"},
            "odradek.max.versions takes NAME=VERSION, such as Fetch=11, not 'Fetch'.",
        ),
        (
            {"odradek.max.versions": "Fetch=1,Fetch=2"},
            "odradek.max.versions names Fetch twice.",
        ),
        ({"odradek.emulate": "2.3"}, "odradek.emulate=2.3: there are 2.4 to 4.4."),
        ({"odradek.emulate": "four"}, "odradek.emulate=four: there are 2.4 to 4.4."),
        (
            {"odradek.emulate": "3.9", "odradek.workers": 2},
            "odradek.emulate is for a node alone: nodes of a cluster need all versions to speak with each "
            "other.",
        ),
    ],
)
def test_what_there_is_not_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(ConfigError) as refused:
        load(keywords=options)
    assert str(refused.value) == sentence


def test_without_these_options_no_version_is_limited():
    config = load()
    assert (config.last_versions, config.emulated) == ({}, None)
