"""Connections without sockets: the frames of a client go straight into the pipeline of requests."""

from __future__ import annotations

from dataclasses import replace

from odradek.apis.declaration import Api, Served
from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import Turn
from odradek.server.network.connection import Connection
from odradek.server.network.connections import ConnectionLimits, Connections
from odradek.server.network.routes import Routes


class Endpoint:
    name = "PLAINTEXT"
    advertised = ("broker.example", 19092)
    sasl = None


class WireTransport:
    """Keeps what is written."""

    def __init__(self, host):
        self.written = b""
        self.is_closed = False
        self.is_reading = True
        self._host = host

    def get_extra_info(self, name):
        return (self._host, 50_000) if name == "peername" else ("127.0.0.1", 9092)

    def set_write_buffer_limits(self, high):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        self.written += bytes(data)

    def writelines(self, buffers):
        self.written += b"".join(buffers)

    def is_closing(self):
        return self.is_closed

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def close(self):
        self.is_closed = True

    abort = close


class Wire:
    """One client. What a broker writes is `frames`; closed by it, there are no more."""

    def __init__(self, connections, host="192.0.2.7"):
        self.transport = WireTransport(host)
        self.connection = Connection(connections, Endpoint())
        self.connection.connection_made(self.transport)

    def send(self, data):
        """As much as fits, read by read."""
        unsent = memoryview(data)
        while unsent and not self.transport.is_closed:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(unsent))
            room[:size] = unsent[:size]
            unsent = unsent[size:]
            self.connection.buffer_updated(size)

    @property
    def is_closing(self):
        return self.connection.responses.is_closing

    @property
    def frames(self):
        frames, written = [], self.transport.written
        while written:
            size = 4 + int.from_bytes(written[:4], "big")
            frames.append(written[:size])
            written = written[size:]
        return frames


def served(request, response, handle, *, needs=(), overlaps=(), prefix=None):
    """An API of a test with its handler."""
    api = Api(request, response, make=lambda parts: handle, needs=needs, overlaps=overlaps)
    return Served(api, handle, prefix)


def wired(apis, loop, now_ms, current_view=lambda: None, *, with_prefixes=True):
    """The connections of a broker with these APIs; `loop` has `call_soon`. Without prefixes the handlers
    answer everything."""
    if not with_prefixes:
        apis = {key: replace(apis[key], prefix=None) for key in apis}
    return Connections(Routes(apis), Turn(loop), Clock(now_ms), ConnectionLimits(), current_view)


def from_prefix(connections, api_key=None):
    """How many requests were served by what their connection remembered, of all APIs or of one."""
    routes = connections.dispatcher.routes.found.values()
    return sum(route.from_prefix for route in routes if api_key in (None, route.api_key))


class Asker:
    """Clients of one broker by their hosts. A client whose connection waits or is closed takes a new one."""

    def __init__(self, connections):
        self.connections = connections
        self._wires = {}

    def ask(self, data, host="192.0.2.7"):
        """A function that gives what came of it: the frames of answers, or "closed"."""
        wire = self._wires.get(host)
        if wire is None or wire.is_closing or wire.connection.is_waiting or wire.connection.unserved_bytes:
            wire = self._wires[host] = Wire(self.connections, host)
        before = len(wire.frames)
        wire.send(data)

        def answers():
            frames = wire.frames[before:]
            return "closed" if wire.is_closing and not frames else frames

        return answers
