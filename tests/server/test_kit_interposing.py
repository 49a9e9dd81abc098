"""Interposers see the requests of their APIs in an order that is promised."""

from types import SimpleNamespace

import pytest

from odradek.apis.declaration import Api, Served
from odradek.server.network.routes import Routes
from odradek.server.test_kit.interposing import Interposing
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

METADATA, VERSION = 3, 4
CONTEXT = SimpleNamespace(refused=())


class Noting:
    def __init__(self, name, seen):
        self._name, self._seen = name, seen

    def serve(self, api, request, context, proceed):
        self._seen.append(self._name)
        return proceed(request, context)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def routes(seen):
    api = Api(MetadataRequest, MetadataResponse, make=lambda _: None, needs=())

    def handle(request, context):
        seen.append("handler")

    return Routes({METADATA: Served(api, handle)})


def ask(routes, seen):
    seen.clear()
    routes.resolve(METADATA << 16 | VERSION).handle(MetadataRequest(), CONTEXT)
    return list(seen)


def test_the_first_one_that_was_put_sees_a_request_first(routes, seen):
    interposing = Interposing(routes)
    interposing.put(Noting("faults", seen), {METADATA})
    interposing.put(Noting("clock", seen), {METADATA})
    assert ask(routes, seen) == ["faults", "clock", "handler"]


def test_one_may_be_put_before_all_others(routes, seen):
    interposing = Interposing(routes)
    assert ask(routes, seen) == ["handler"]
    interposing.put(Noting("faults", seen), {METADATA})
    requests = Noting("requests", seen)
    interposing.put(requests, {METADATA}, before_others=True)
    interposing.put(Noting("clock", seen), {METADATA})
    assert ask(routes, seen) == ["requests", "faults", "clock", "handler"]
    interposing.put(requests, ())
    assert ask(routes, seen) == ["faults", "clock", "handler"]


def test_an_api_that_is_not_served_has_nobody_before_it(routes, seen):
    with pytest.raises(KeyError):
        Interposing(routes).put(Noting("requests", seen), {1})
