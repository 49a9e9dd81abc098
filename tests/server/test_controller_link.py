"""The link to the controllers: what it says of refusals, and what becomes of requests at its end."""

import asyncio
import logging
import socket

import pytest

from odradek.coordinator.kraft.broker_lifecycle import LifecycleSettings
from odradek.coordinator.kraft.metadata_fetcher import Controller, FetcherSettings
from odradek.server.cluster.controller_link import ControllerLink, LinkSettings, NoController, Refusals
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest

DUPLICATE, STALE = ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.STALE_BROKER_EPOCH


def test_a_refusal_is_said_once_in_thirty_seconds_and_another_one_at_once(caplog):
    clock = [0]
    refusals = Refusals(7, lambda: clock[0])
    said = []
    for now_ms, error in (
        (0, DUPLICATE),
        (100, DUPLICATE),
        (29_900, DUPLICATE),
        (30_000, DUPLICATE),
        (30_100, STALE),
        (30_200, ErrorCode.NOT_CONTROLLER),
    ):
        clock[0] = now_ms
        with caplog.at_level(logging.WARNING):
            refusals.refused("no", error)
        said.append(len(caplog.messages))
    assert said == [1, 1, 1, 2, 3, 3]
    assert caplog.messages[0].startswith("no: another process is registered as node 7")
    assert caplog.messages[0].endswith("(DUPLICATE_BROKER_REGISTRATION)")
    assert "(STALE_BROKER_EPOCH)" in refusals.last


def test_after_an_answer_the_next_refusal_is_said_at_once(caplog):
    refusals = Refusals(7, lambda: 0)
    refusals.refused("no", DUPLICATE)
    refusals.ended()
    refusals.refused("no", DUPLICATE)
    assert len(caplog.messages) == 2


def settings_for(port):
    return LinkSettings(
        bootstrap=[Controller(100, "127.0.0.1", port)],
        cluster_id="c" * 22,
        node_id=7,
        registration=BrokerRegistrationRequest(broker_id=7),
        directory_id=bytes(16),
        lifecycle=LifecycleSettings(),
        fetcher=FetcherSettings(),
    )


class Listener:
    """Nothing is said to it before a controller answers, but that there is none."""

    def state_changed(self, state, broker_epoch, is_fenced):
        assert (broker_epoch, is_fenced) == (-1, True)


def test_requests_under_way_are_cancelled_when_the_link_ends_and_later_ones_are_refused():
    request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=1)

    async def run():
        with socket.socket() as nobody:
            # Bound, and nobody listens: no controller is ever found.
            nobody.bind(("127.0.0.1", 0))
            link = ControllerLink(settings_for(nobody.getsockname()[1]), Listener())
            link.start()
            asking = link.ask(request)
            link.close()
            return asking, link.ask(request)

    asking, late = asyncio.run(run())
    assert asking.cancelled()
    with pytest.raises(NoController, match="has ended"):
        late.result(0)
