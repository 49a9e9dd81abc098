"""Topics that the controllers create when a client needs them."""

import asyncio
from concurrent.futures import Future

import pytest

from odradek.config.broker_config import BrokerConfig
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import ClusterView, TopicView
from odradek.server.cluster import new_topics
from odradek.server.cluster.new_topics import NewTopics, given_numbers
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.wire.work import finish

NONE, EXISTS, REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.POLICY_VIOLATION


class Controllers:
    """They answer with `errors`, by topic, and the view has the topics when they do; None: no answer."""

    def __init__(self, errors):
        self.errors = errors
        self.asked = []
        self.futures = []
        self.view = ClusterView()
        self.topics = NewTopics(self.ask, lambda: self.view, partition_count=4, replication_factor=2)

    def ask(self, request, *, timeout_ms=None):
        self.asked.append([one.name for one in request.topics])
        self.counts = [(one.num_partitions, one.replication_factor) for one in request.topics]
        future = Future()
        self.futures.append(future)
        if self.errors is not None:
            self.answer(future, self.asked[-1])
        return future

    def answer(self, future, names):
        results = [
            CreatableTopicResult(name=name, error_code=self.errors.get(name, NONE), error_message=None)
            for name in names
        ]
        found = {name: TopicView(name, name.encode() * 16, ()) for name in names}
        self.view = ClusterView(topics=found)
        future.set_result(CreateTopicsResponse(topics=results))

    def create(self, *names):
        results = finish(self.topics.creating([NewTopic(name) for name in names]))
        return {one.name: None if one.error is None else one.error.code for one in results}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(new_topics, "NEW_TOPIC_WAIT_S", 0.0)


async def turns():
    """What other threads have handed in is done."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_topic_that_another_client_has_created_meanwhile_is_no_error():
    async def story():
        controllers = Controllers({"b": EXISTS, "c": REFUSED})
        assert controllers.create("a", "b", "c") == {"a": None, "b": None, "c": REFUSED}
        assert controllers.asked == [["a", "b", "c"]]

    asyncio.run(story())


def test_a_topic_that_is_asked_for_is_not_asked_for_again_before_the_answer():
    async def story():
        controllers = Controllers(None)
        for names in (("a", "b"), ("a",), ("b", "c")):
            with pytest.raises(KafkaError) as caught:
                controllers.create(*names)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert controllers.asked == [["a", "b"], ["c"]]
        controllers.errors = {}
        for future, names in zip(controllers.futures, controllers.asked, strict=True):
            controllers.answer(future, names)
        await turns()
        assert controllers.create("a") == {"a": None}
        assert controllers.asked == [["a", "b"], ["c"], ["a"]]

    asyncio.run(story())


def test_nobody_waits_for_controllers_that_have_not_answered_before(monkeypatch):
    waits = []

    class Never(Future):
        def result(self, timeout=None):
            waits.append(timeout)
            raise TimeoutError

    async def story():
        monkeypatch.setattr(new_topics, "NEW_TOPIC_WAIT_S", 60.0)
        topics = NewTopics(
            lambda request, *, timeout_ms=None: Never(), ClusterView, partition_count=1, replication_factor=1
        )
        for name in ("a", "b"):
            with pytest.raises(KafkaError):
                finish(topics.creating([NewTopic(name)]))

    asyncio.run(story())
    assert waits[0] > 50
    assert waits[1] == 0


def test_what_a_topic_does_not_say_is_this_nodes_default():
    async def story():
        controllers = Controllers({})
        topics = [NewTopic("a"), NewTopic("b", 7, 3), NewTopic("c", 7), NewTopic("d", assignments=[(0, [1])])]
        finish(controllers.topics.creating(topics))
        assert controllers.counts == [(4, 2), (7, 3), (7, 2), (-1, -1)]

    asyncio.run(story())


def test_an_option_that_was_not_given_leaves_the_number_to_the_controllers():
    assert given_numbers(BrokerConfig({"num.partitions": "5"})) == (5, -1)
    assert given_numbers(BrokerConfig({"default.replication.factor": "3"})) == (-1, 3)
