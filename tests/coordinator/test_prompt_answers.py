"""What `ask` says is what `submit` would have said, whatever happens: the same lives, lived both ways."""

import pytest

from odradek.coordinator.asked import kind_of
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from tests.coordinator.group_world import (
    AlikeConsumer,
    ClassicConsumer,
    Consumer,
    CooperativeConsumer,
    World,
    group_of,
)
from tests.tiers import NIGHTLY

GROUPS = {
    "alike": [AlikeConsumer] * 4,
    "different": [Consumer, Consumer, AlikeConsumer],
    "eager": [ClassicConsumer] * 4,
    "cooperative": [CooperativeConsumer] * 3,
    "migrating": [Consumer, CooperativeConsumer, CooperativeConsumer],
}


class Told(World):
    """A world that writes down who was answered what, and when."""

    def __init__(self, *arguments) -> None:
        self.history: list[tuple] = []
        self.prompt: list[type] = []
        super().__init__(*arguments)

    def deliver(self, client, then, reply, view) -> None:
        self.history.append((self.now_ms, client.group_id, client.member_id, reply))
        super().deliver(client, then, reply, view)


class Asked(Told):
    """The same, where heartbeats are asked first for what can be said at once."""

    def submit(self, command) -> None:
        reply = None
        if kind_of(command) in (HeartbeatRequest, ConsumerGroupHeartbeatRequest):
            reply = self.coordinator.ask(group_of(command), command)
        if reply is None:
            super().submit(command)
        else:
            self.prompt.append(kind_of(command))
            command.ticket.take(reply)


@pytest.mark.parametrize("seed", range(3 if NIGHTLY else 1))
def test_a_life_is_the_same_whether_heartbeats_are_asked_or_submitted(seed):
    told, asked = (kind(seed, GROUPS).play(30_000) for kind in (Told, Asked))
    assert told.history == asked.history
    assert told.log.records == asked.log.records
    assert told.judge() == asked.judge() == []
    assert asked.prompt.count(HeartbeatRequest) > 50
    assert asked.prompt.count(ConsumerGroupHeartbeatRequest) > 50
    assert not told.prompt
