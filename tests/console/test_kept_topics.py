"""Topics of a large cluster: kept for a while, for one person, until something is changed."""

import pytest

from odradek.client.admin.topics import create_topic
from odradek.client.settings import ClientSettings
from odradek.console import kept_topics
from odradek.console.access import Access
from odradek.console.kept_topics import KEPT_S, KeptTopics
from odradek.console.screens import topics


class Clock:
    """Seconds that a test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(kept_topics, "LARGE_PARTITIONS", 1)


@pytest.fixture
def access(broker):
    opened = Access(ClientSettings(broker.bootstrap_servers, retry_ms=1))
    yield opened
    opened.close()


def names(found):
    return {topic.name for topic in found}


def test_a_large_list_is_kept_for_a_while(large, access, cluster):
    clock = Clock()
    kept = KeptTopics(clock)
    create_topic(cluster, "kept-1", 1, {})
    first = kept.read(access, cluster)
    create_topic(cluster, "kept-2", 1, {})
    assert kept.read(access, cluster) is first
    clock.now += KEPT_S
    assert {"kept-1", "kept-2"} <= names(kept.read(access, cluster))


def test_a_small_list_and_that_of_another_person_are_read_anew(access, broker, cluster, monkeypatch):
    kept = KeptTopics(Clock())
    create_topic(cluster, "kept-3", 1, {})
    first = kept.read(access, cluster)
    assert kept.read(access, cluster) is not first
    monkeypatch.setattr(kept_topics, "LARGE_PARTITIONS", 1)
    mine = kept.read(access, cluster)
    other = Access(ClientSettings(broker.bootstrap_servers, retry_ms=1))
    assert kept.read(other, cluster) is not mine
    other.close()


def test_a_change_by_a_person_is_seen_at_once(large, browser):
    browser.page("/topics")
    assert browser.post("/create-topic/send", {"name": "kept-4", "do": "create"}).status_code == 303
    assert "kept-4" in browser.page("/topics").text


def test_too_many_partitions_are_not_sorted_by_what_brokers_tell(browser, monkeypatch):
    for name, partitions in (("sorted-1", "3"), ("sorted-2", "2")):
        browser.post("/create-topic/send", {"name": name, "partitions": partitions, "do": "create"})
    monkeypatch.setattr(topics, "SORTED_PARTITIONS_MAX", 3)
    page = browser.page("/topics?sort=records&filter=sorted")
    assert "takes too long for 5 partitions" in page.text
    assert page.all("input", name="filter"), "one can filter there"
    assert "sorted-1" in browser.page("/topics?sort=records&filter=sorted-1").text
    assert "sorted-2" in browser.page("/topics?sort=partitions&filter=sorted").text
