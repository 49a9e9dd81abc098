"""The broker is killed in the middle of every phase of a group's life; its members get over it.

A proxy between them sees the request that belongs to the phase. `request`: the broker dies before it gets it;
`answer`: it has done what it was asked, and nobody hears of it.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable

import pytest

from compat_tests.groups.conftest import SLOW_RESTART_MS
from compat_tests.groups.judge import NOTHING, Allowed
from compat_tests.groups.members import CONSUMER, SESSION_MS, Group, Kind, group_of
from compat_tests.kit.proxy import Verdict
from compat_tests.kit.transaction_brokers import Start, TransactionBroker
from odradek.wire.codec import decoder
from odradek.wire.frames import read_request_header
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.sync_group import SyncGroupRequest
from tests.tiers import NIGHTLY

IsIt = Callable[[int, bytes], bool]
"""Whether a request belongs to a phase: by API key and frame."""

PHASES: dict[str, IsIt] = {
    phase: lambda api_key, frame, wanted=request.api_key: api_key == wanted  # type: ignore[misc]
    for phase, request in {
        "joining": JoinGroupRequest,
        "syncing": SyncGroupRequest,
        "stable": HeartbeatRequest,
        "leaving": LeaveGroupRequest,
    }.items()
}


def heartbeat(frame: bytes) -> ConsumerGroupHeartbeatRequest:
    header, position = read_request_header(frame, 0)
    return decoder(ConsumerGroupHeartbeatRequest, header.api_version)(frame, position)[0]


def of_heartbeats(is_it: Callable[[ConsumerGroupHeartbeatRequest], bool]) -> IsIt:
    wanted = ConsumerGroupHeartbeatRequest.api_key
    return lambda api_key, frame: api_key == wanted and is_it(heartbeat(frame))


NEW_PHASES: dict[str, IsIt] = {
    "joining": of_heartbeats(lambda request: request.member_epoch == 0),
    "syncing": of_heartbeats(lambda request: request.member_epoch > 0 and bool(request.topic_partitions)),
    "stable": of_heartbeats(lambda request: request.member_epoch > 0 and request.topic_partitions is None),
    "leaving": of_heartbeats(lambda request: request.member_epoch < 0),
}
"""`syncing`: a member says what it has taken, or has left of it."""

MOMENTS = ["answer", *(["request"] * NIGHTLY)]
KINDS = [
    Kind("java-4.3", "cooperative-sticky"),
    Kind("confluent-kafka", "range"),
    Kind("aiokafka", "range"),
    Kind("kafka-python", "range"),
    *([Kind("java-4.3", "range"), Kind("java-3.9", "range")] * NIGHTLY),
    *([Kind("confluent-kafka", "cooperative-sticky")] * NIGHTLY),
]
NEW_KINDS = [Kind("java-4.3", "uniform", CONSUMER), Kind("confluent-kafka", "uniform", CONSUMER)]
BEGINS_ANEW = Allowed(commits_go_back=True, gaps=True)
"""aiokafka takes a coordinator's passing error after a restart for "nothing is committed", begins at the
first offset again, and commits that."""


class Strike:
    """Kills the broker, once, at a request for which `is_it` holds, and starts it again."""

    def __init__(self, broker: TransactionBroker, is_it: IsIt, moment: str) -> None:
        self._broker, self._is_it = broker, is_it
        self._verdict = Verdict.LOSE_REQUEST if moment == "request" else Verdict.LOSE_ANSWER
        self._lock = threading.Lock()
        self._seen = False
        self.is_over = threading.Event()

    def __enter__(self) -> Strike:
        self._broker.proxy.answer_lost = lambda _: self._hit()
        self._broker.proxy.judge = self._judge
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.proxy.judge = self._broker.proxy.answer_lost = None

    def _judge(self, api_key: int, frame: bytes) -> Verdict:
        with self._lock:
            if self._seen or not self._is_it(api_key, frame):
                return Verdict.PASS
            self._seen = True
        if self._verdict is Verdict.LOSE_REQUEST:
            self._hit()
        return self._verdict

    def _hit(self) -> None:
        self._broker.kill()
        self._broker.start()
        self.is_over.set()


def live_through(group: Group, phases: dict[str, IsIt], moment: str) -> None:
    for _ in range(2):
        group.join()
    group.wait_until_shared()
    for phase, is_it in phases.items():
        with Strike(group.broker, is_it, moment) as strike:
            if phase == "leaving":
                group.leave(group.members[0])
            elif phase != "stable":
                group.join()
            group.wait(strike.is_over.is_set, f"the broker dies while {phase}")
        group.wait_until_shared()
    group.finish(BEGINS_ANEW if group.kind.library == "aiokafka" else NOTHING)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_group_gets_over_a_broker_that_dies_in_every_phase(
    start_broker: Start, kind: Kind, moment: str, tmp_path: pathlib.Path
) -> None:
    broker = start_broker(proxied=True)
    session_ms = SESSION_MS if broker.is_odradek else SLOW_RESTART_MS
    with group_of(broker, tmp_path, kind, session_ms=session_ms) as group:
        live_through(group, PHASES, moment)


@pytest.mark.usefixtures("new_protocol")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", NEW_KINDS, ids=str)
def test_a_group_of_the_new_protocol_gets_over_a_broker_that_dies_in_every_phase(
    start_broker: Start, kind: Kind, moment: str, tmp_path: pathlib.Path
) -> None:
    # Its member ids are of the clients: no session has to end because a response was lost.
    with group_of(start_broker(proxied=True, is_patient=True), tmp_path, kind) as group:
        live_through(group, NEW_PHASES, moment)
