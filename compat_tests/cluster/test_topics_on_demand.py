"""Topics that are created when a client asks for them are there in the answer, as with a node alone."""

from __future__ import annotations

import threading

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

AT_ONCE = 8


def errors_of(side: Side, *names: str) -> list[ErrorCode]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    return [ErrorCode(topic.error_code) for topic in side.ask(request, 9).topics]


def test_a_topic_is_in_the_answer_that_has_created_it(odradek: OdradekMember) -> None:
    side = Side("odradek", odradek.bootstrap_servers)
    for number in range(5):
        assert errors_of(side, f"wanted-{number}", f"wanted-too-{number}") == [ErrorCode.NONE] * 2
    side.close()


def test_clients_of_two_nodes_that_ask_for_one_topic_at_once_all_get_it(
    odradek: OdradekMember, other: OdradekMember
) -> None:
    found: list[list[ErrorCode]] = []

    def ask(bootstrap: str, barrier: threading.Barrier) -> None:
        side = Side("client", bootstrap)
        barrier.wait(DEADLINE_SECONDS)
        found.append(errors_of(side, "in-demand-0", "in-demand-1"))
        side.close()

    told = len(odradek.log), len(other.log)
    barrier = threading.Barrier(AT_ONCE)
    addresses = (odradek.bootstrap_servers, other.bootstrap_servers)
    threads = [
        threading.Thread(target=ask, args=(addresses[number % 2], barrier)) for number in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert found == [[ErrorCode.NONE] * 2] * AT_ONCE
    assert "cannot be created" not in odradek.log[told[0] :] + other.log[told[1] :]
