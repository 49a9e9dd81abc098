"""Every API that clients send, with every action of the kit: what the client does, what its application is
told, and what the broker has then.

A fault is for the client id of its case, so that many cases are played at once: most of their time is
waiting.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.test_kit.clients import StoryClient
from compat_tests.test_kit.stories import (
    ACTIONS,
    ADMINISTRATION,
    AREAS,
    CLIENTS,
    NOT_SENT,
    NOT_SENT_BY,
    OLDER_BROKER,
    OUTCOMES,
    STORIES,
    actions_of,
    area_of,
)
from compat_tests.test_kit.walking import Case, check, play
from odradek import Broker
from odradek.apis.table import MODULES
from odradek.wire.messages import api_name
from tests.kit.collecting import collected

AT_ONCE = 10


def test_each_api_has_a_story_or_a_reason_for_each_client() -> None:
    known = {api_name(key) for key in MODULES}
    for client in CLIENTS:
        told = [api for api, story in STORIES.items() if client in story.clients]
        reasons = [api for apis in NOT_SENT_BY[client].values() for api in apis]
        every = [*told, *reasons, *NOT_SENT]
        assert sorted(every) == sorted(known), client


def test_each_exception_from_the_rule_is_about_a_case() -> None:
    assert set(OUTCOMES) <= {
        (client, api, action)
        for api, story in STORIES.items()
        for client in story.clients
        for action in actions_of(client, api)
    }


@pytest.mark.parametrize("area", [*AREAS, ADMINISTRATION])
@pytest.mark.parametrize(
    "library",
    [pytest.param(client, marks=pytest.mark.xdist_group(client)) for client in CLIENTS],
    indirect=True,
)
def test_each_action_ends_as_it_is_told(
    library: StoryClient, area: str, tested: Broker, older: Broker
) -> None:
    cases = [
        Case(library.name, api, action)
        for api, story in STORIES.items()
        if library.name in story.clients and area_of(api) == area
        for action in actions_of(library.name, api)
    ]
    cases.sort(key=lambda case: not ACTIONS[case.action].is_hasty)  # first those that wait
    with ThreadPoolExecutor(AT_ONCE) as threads, collected() as failures:
        playing = [
            (case, threads.submit(play, case, library, older if case[:2] in OLDER_BROKER else tested))
            for case in cases
        ]
        for case, told in playing:
            with failures.of(" ".join(case)):
                check(case, told.result())
