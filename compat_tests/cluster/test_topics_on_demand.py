"""Topics that are created when a client asks for them are there in the answer, as with a node alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.sharing import Members
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers
from odradek.server.cluster import new_topics
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

AT_ONCE = 8


def errors_of(side: Side, *names: str) -> list[ErrorCode]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    answer = side.ask(request, 9, seconds=DEADLINE_SECONDS)
    return [ErrorCode(topic.error_code) for topic in answer.topics]


@pytest.fixture(scope="module")
def nodes(
    controllers: Controllers, cluster_of_members: Members, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Inside]]:
    """Two nodes that come and go, in a cluster with others that stay."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Inside(controllers, number, tmp_path_factory.mktemp(f"node-{number}")))
            for number in (61, 62)
        ]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes wait for a new topic however long a busy machine takes."""
    monkeypatch.setattr(new_topics, "NEW_TOPIC_WAIT_S", DEADLINE_SECONDS)


def test_a_topic_is_in_the_answer_that_has_created_it(nodes: list[Inside]) -> None:
    side = Side("odradek", nodes[0].bootstrap_servers)
    for number in range(5):
        assert errors_of(side, f"wanted-{number}", f"wanted-too-{number}") == [ErrorCode.NONE] * 2
    side.close()


def test_clients_of_two_nodes_that_ask_for_one_topic_at_once_all_get_it(
    nodes: list[Inside], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="odradek")
    found: list[list[ErrorCode]] = []

    def ask(bootstrap: str, barrier: threading.Barrier) -> None:
        side = Side("client", bootstrap)
        barrier.wait(DEADLINE_SECONDS)
        found.append(errors_of(side, "in-demand-0", "in-demand-1"))
        side.close()

    barrier = threading.Barrier(AT_ONCE)
    threads = [
        threading.Thread(target=ask, args=(nodes[number % 2].bootstrap_servers, barrier))
        for number in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert found == [[ErrorCode.NONE] * 2] * AT_ONCE
    assert "cannot be created" not in caplog.text
