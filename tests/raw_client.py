"""Clients for tests that send requests, or any bytes, to a broker and look at each answer.

`RawClient` blocks, `AsyncRawClient` is awaited; both have the same methods. Both raise EOFError when the
broker ends the connection before an answer is complete.
"""

import asyncio
import socket
import struct

from odradek.wire.frames import read_response, request_frame
from odradek.wire.schema import Buffer, Message

CLIENT_ID = "tests"


def frame_size(prefix: bytes) -> int:
    """The size in bytes of the frame that follows these four bytes."""
    return struct.unpack(">i", prefix)[0]


def read_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    """So many bytes of a blocking socket; EOFError when the peer ends the connection before."""
    received = bytearray()
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise EOFError(f"the connection ended after {len(received)} of {size_bytes} bytes")
        received += piece
    return bytes(received)


def read_frame(connection: socket.socket) -> bytes:
    """The next frame of a blocking socket, without its size."""
    return read_exactly(connection, frame_size(read_exactly(connection, 4)))


class _Requests:
    """What both clients send."""

    def send(self, *frames: Buffer) -> None:
        """Send bytes as they are."""
        raise NotImplementedError

    def send_request(
        self, request: Message, version: int, correlation_id: int = 1, client_id: str = CLIENT_ID
    ) -> None:
        """Send a request and do not wait for its answer."""
        self.send(request_frame(request, version, correlation_id, client_id))


class RawClient(_Requests):
    """One blocking connection.

    `receive_buffer_bytes` bounds what the kernel takes before the test reads it.
    """

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        timeout_s: float = 30,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((host, port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, *frames: Buffer) -> None:
        self.socket.sendall(b"".join(frames))

    def receive_frame(self) -> bytes:
        """The next answer: its bytes after the size."""
        return read_frame(self.socket)

    def receive(self, request_class: type[Message], version: int):
        """The next answer, to a request of that class: its correlation id and the message."""
        return read_response(self.receive_frame(), request_class, version)

    def ask(self, request: Message, version: int, correlation_id: int = 1, client_id: str = CLIENT_ID):
        """Send a request and wait for its answer; nothing else may be under way."""
        self.send_request(request, version, correlation_id, client_id)
        answered_id, answer = self.receive(type(request), version)
        assert answered_id == correlation_id
        return answer

    def read_to_end(self) -> bytes:
        """Wait until the broker has ended the connection; what it sent before."""
        received = bytearray()
        try:
            while piece := self.socket.recv(65_536):
                received += piece
        except ConnectionError:
            pass
        return bytes(received)

    def close(self) -> None:
        """End the connection; may be called again."""
        self.socket.close()


class AsyncRawClient(_Requests):
    """One connection of an event loop; made by `await AsyncRawClient.connect(port)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1"):
        """Connect; subclasses get one of their own class."""
        return cls(*await asyncio.open_connection(host, port))

    def send(self, *frames: Buffer) -> None:
        self.writer.write(b"".join(frames))

    async def receive_frame(self) -> bytes:
        """The next answer: its bytes after the size."""
        return await self.reader.readexactly(frame_size(await self.reader.readexactly(4)))

    async def receive(self, request_class: type[Message], version: int):
        """The next answer, to a request of that class: its correlation id and the message."""
        return read_response(await self.receive_frame(), request_class, version)

    async def ask(self, request: Message, version: int, correlation_id: int = 1, client_id: str = CLIENT_ID):
        """Send a request and wait for its answer; nothing else may be under way."""
        self.send_request(request, version, correlation_id, client_id)
        answered_id, answer = await self.receive(type(request), version)
        assert answered_id == correlation_id
        return answer

    async def read_to_end(self) -> bytes:
        """Wait until the broker has ended the connection; what it sent before."""
        received = bytearray()
        try:
            while piece := await self.reader.read(65_536):
                received += piece
        except ConnectionError:
            pass
        return bytes(received)

    def close(self) -> None:
        """End the connection; may be called again."""
        self.writer.close()
