"""A proxy that understands what it passes on, so that a test can change answers, hold them or cut the line.

And `Peer`, which answers with whatever bytes a test gives it.
"""

import contextlib
import socket
import struct
import threading
from collections import Counter

from odradek.wire.frames import read_request_header, read_response, response_parts
from odradek.wire.messages import find
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.raw_client import read_frame

CUT = object()
"""What a change gives instead of an answer to end the connection."""


class _Server:
    """Accepts on a free port, and serves each connection in a thread of its own."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._threads = []
        self._start(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                self._start(self._serve_quietly, connection)

    def _serve_quietly(self, connection):
        with connection, contextlib.suppress(OSError, EOFError):
            self.serve(connection)


class Proxy(_Server):
    """Between a client and the broker at `broker_port`; every address in an answer is that of the proxy.

    `change(request class, function)`: the function gets each answer to such requests, and gives the one that
    is passed on (or CUT). `asked` counts the requests by class.
    """

    def __init__(self, broker_port):
        self.broker_port = broker_port
        self.asked = Counter()
        self._changes = {}
        super().__init__()

    def change(self, request_class, function):
        self._changes[request_class] = function

    def change_once(self, request_class, function):
        """Only the next answer."""

        def change(answer):
            del self._changes[request_class]
            return function(answer)

        self._changes[request_class] = change

    def serve(self, client):
        with socket.create_connection(("127.0.0.1", self.broker_port)) as broker:
            self._sockets.append(broker)
            while True:
                request = read_frame(client)
                header, _ = read_request_header(request, 0)
                request_class = find(header.api_key)[0]
                self.asked[request_class] += 1
                broker.sendall(struct.pack(">i", len(request)) + request)
                correlation_id, answer = read_response(read_frame(broker), request_class, header.api_version)
                answer = self._changed(request_class, answer)
                if answer is CUT:
                    return
                client.sendall(b"".join(response_parts(answer, header.api_version, correlation_id)))

    def _changed(self, request_class, answer):
        if request_class is MetadataRequest:
            for one in answer.brokers:
                one.port = self.port
        if request_class is FindCoordinatorRequest:
            for one in answer.coordinators:
                one.port = self.port
        change = self._changes.get(request_class)
        return answer if change is None else change(answer)


class Peer(_Server):
    """Answers each request frame with what `answers` gives: bytes to send, or None to close."""

    def __init__(self, *answers):
        self._answers = iter(answers)
        super().__init__()

    def serve(self, client):
        while True:
            request = read_frame(client)
            answer = next(self._answers, None)
            if answer is None:
                return
            client.sendall(answer(request) if callable(answer) else answer)
