"""The links among the members of a cluster on one machine, which a test can cut.

`Links` runs a proxy in front of each member's listener for other members, all in one process of their own.
Members advertise the proxies' addresses. Who dials is known from the client id of the first request: nodes
and Kafka's controllers put their number into it. Whoever does not is never cut off.

A cut has a direction: no byte passes from one member to another, in connections of either. The bytes wait, as
those of a network that comes back, and so does the end of a connection. A new connection needs both
directions. Nobody is told of a cut.

    python -m odradek.embedding.links '[[ID, PORT OF THE PROXY, PORT OF THE MEMBER], ...]'

reads a line of JSON for each change, all cuts that hold from then on as [[FROM, TO], ...], and ends with its
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from odradek.embedding.cluster_processes import ClusterStartError
from odradek.server.process.child_python import child_environment
from odradek.server.process.main_loop import new_event_loop

Cut = tuple[int, int]
"""From one member to another, by their ids."""
READY, DONE = "ready\n", "done\n"
HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 18
STOP_TIMEOUT_S = 5.0
_HEAD = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, length of the client id."""
_NUMBERED = re.compile(rb"(?:broker-|raft-client-)?(\d+)(?![\w.])")


def dialer_of(client_id: bytes) -> int | None:
    """The member that sends requests with this client id."""
    found = _NUMBERED.match(client_id)
    return int(found[1]) if found else None


# -- for the parent


class Links:
    """`members` are (id, port of the proxy, port of the member). `log` gets what goes wrong."""

    def __init__(self, members: Iterable[tuple[int, int, int]], log: Path) -> None:
        self._members = list(members)
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Returns when the proxies listen. Harmless when they do. Raises ClusterStartError."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "odradek.embedding.links", json.dumps(self._members)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(),
                text=True,
                start_new_session=True,
            )
        said = self._read()
        if said != READY:
            self.close()
            raise ClusterStartError(f"the links among the nodes: {said.strip() or 'see ' + str(self._log)}")

    def cut(self, cuts: Collection[Cut]) -> None:
        """From now on just these are cut."""
        process = self._process
        if process is None:
            raise RuntimeError("the links among the nodes do not run")
        assert process.stdin is not None
        process.stdin.write(json.dumps(sorted(cuts)) + "\n")
        process.stdin.flush()
        if self._read() != DONE:
            raise RuntimeError(f"the links among the nodes have ended: see {self._log}")

    def close(self) -> None:
        """Ends every connection. Harmless a second time."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _read(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline()


# -- the process


class _Cuts:
    """Cuts in force."""

    def __init__(self) -> None:
        self._pairs: frozenset[Cut] = frozenset()
        self._changed = asyncio.Event()

    def replace(self, pairs: Iterable[Cut]) -> None:
        self._pairs = frozenset(pairs)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, *pairs: tuple[int | None, int | None]) -> None:
        """Until none of these is cut."""
        while not self._pairs.isdisjoint(pairs):
            await self._changed.wait()


class _Proxy:
    """In front of one member."""

    def __init__(self, member: int, port: int, cuts: _Cuts) -> None:
        self._member, self._port, self._cuts = member, port, cuts

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first request to its end."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._carry(reader, writer)
            finally:
                writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(_HEAD.size)
        client_id = await reader.readexactly(max(_HEAD.unpack(head)[-1], 0))
        dialer, member = dialer_of(client_id), self._member
        await self._cuts.wait((dialer, member), (member, dialer))
        there_reader, there_writer = await asyncio.open_connection(HOST, self._port, limit=CHUNK_BYTES)
        try:
            there_writer.write(head + client_id)
            await asyncio.gather(
                self._pass(reader, there_writer, dialer, member),
                self._pass(there_reader, writer, member, dialer),
            )
        finally:
            there_writer.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int | None,
        target: int | None,
    ) -> None:
        """Passes on what one side sends, and then its end."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._cuts.wait((source, target))
                writer.write(data)
                await writer.drain()
        await self._cuts.wait((source, target))
        writer.close()


async def _run(members: Iterable[tuple[int, int, int]]) -> None:
    cuts = _Cuts()
    servers = []
    for member, listens, port in members:
        proxy = _Proxy(member, port, cuts)
        servers.append(await asyncio.start_server(proxy.carry, HOST, listens, limit=CHUNK_BYTES))
    print(READY, end="", flush=True)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        cuts.replace((source, target) for source, target in json.loads(line))
        print(DONE, end="", flush=True)


def main() -> int:
    """The process, to the end of its standard input."""
    loop = new_event_loop()
    try:
        loop.run_until_complete(_run(json.loads(sys.argv[1])))
    except OSError as error:
        print(f"a port is taken by another process ({error.strerror or error})", flush=True)
        return 1
    # Connections that wait behind a cut end with the process.
    return 0


if __name__ == "__main__":
    os._exit(main())
