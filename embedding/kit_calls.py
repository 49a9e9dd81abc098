"""The test kit of a broker, and calls to that of a child process over a socket of the file system."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odradek.config.broker_config import TEST_API_LISTEN, UNIX
from odradek.server.test_kit.kit import TestKitError

if TYPE_CHECKING:
    from odradek.embedding.broker_clock import BrokerClock
    from odradek.embedding.faults import Faults
    from odradek.embedding.seen import Requests, WaitFor


class KitWatcher(Protocol):
    """Is told what is done with the test kit of a broker: the plugin for pytest wants to undo it."""

    def started(self) -> None:
        """The broker has started, and its kit knows nothing of before."""

    def called(self, operation: str, result: Any) -> None:
        """An operation has been carried out, with this result."""


class WithTestKit:
    """A broker or a node that has a test kit."""

    kit_watcher: KitWatcher | None = None

    def tell_started(self) -> None:
        """Tells the watcher that the broker has started."""
        if self.kit_watcher is not None:
            self.kit_watcher.started()

    def tell_called(self, operation: str, result: Any) -> Any:
        """Tells the watcher of an operation; its result."""
        if self.kit_watcher is not None:
            self.kit_watcher.called(operation, result)
        return result

    def call_kit(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The result of an operation of the test kit (`server/test_kit/kit.py`); people use the attributes
        below. TestKitError, a ValueError: it is refused. RuntimeError: the broker does not run."""
        raise NotImplementedError

    @property
    def faults(self) -> Faults:
        """Faults on command: `broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)`."""
        from odradek.embedding.faults import Faults

        return Faults(self.call_kit)

    @property
    def clock(self) -> BrokerClock:
        """The time that the broker sees: `broker.clock.advance(hours=1)`."""
        from odradek.embedding.broker_clock import BrokerClock

        return BrokerClock(self.call_kit)

    def run_retention(self) -> None:
        """Deletes now what `retention.ms` and `retention.bytes` do not keep, in all topics."""
        self.call_kit("logs.retain", {})

    def compact(self, topic: str) -> None:
        """Compacts a topic now, up to its end, however little is dirty. TestKitError: there is no such topic,
        or its `cleanup.policy` is another one."""
        self.call_kit("logs.compact", {"topic": topic})

    def roll(self, topic: str, partition: int | None = None) -> None:
        """Begins a new segment in a partition, or in all of a topic: retention and compaction only take
        segments that are closed. TestKitError: there is no such topic or partition."""
        self.call_kit("logs.roll", {"topic": topic, "partition": partition})

    @property
    def requests(self) -> Requests:
        """The requests of its clients, with its responses: `broker.requests.record()`, then
        `broker.requests(api="Produce")` (docs/testing-requests.md)."""
        from odradek.embedding.seen import Requests

        return Requests(self.call_kit)

    @property
    def wait_for(self) -> WaitFor:
        """Waits for records, groups, lag, transactions and requests: `broker.wait_for.lag("shop")`."""
        from odradek.embedding.seen import WaitFor

        return WaitFor(self.call_kit)


class KitSocket:
    """The address of the test kit of one child process, which may start again and again."""

    def __init__(self) -> None:
        # Not in the data directory: the path of a socket has 107 bytes at most.
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-kit-")
        self._path = Path(self._folder.name) / "kit.sock"

    def setting(self, others: Any) -> str:
        """NAME=VALUE of the option that opens it. `others` is the option's value for other addresses: a text,
        a list, or None."""
        texts = others if isinstance(others, list | tuple) else [others or ""]
        return f"{TEST_API_LISTEN}={','.join([f'{UNIX}{self._path}', *filter(None, texts)])}"

    @property
    def path(self) -> str:
        """Path of the socket."""
        return str(self._path)

    @property
    def log_path(self) -> Path:
        """Where the log of the process is to be."""
        return self._path.with_name("log")

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The same as `call_at`."""
        return call_at(self.path, operation, arguments, timeout_s)

    def close(self) -> None:
        self._folder.cleanup()


def call_at(
    address: tuple[str, int] | str,
    operation: str,
    arguments: Mapping[str, Any],
    timeout_s: float | None = None,
) -> Any:
    """The result of `TestKit.call` at host and port, or at the path of a socket of the file system.
    ConnectionError and TimeoutError when the broker does not answer."""
    part, _, name = operation.partition(".")
    try:
        body = json.dumps(dict(arguments))
    except TypeError as error:
        raise TestKitError(
            f"{operation}: {error}; a Python object is for a broker in this process (process=False)"
        ) from None
    connection: http.client.HTTPConnection
    headers = {"Content-Type": "application/json"}
    if isinstance(address, str):
        connection = _Connection(address, timeout_s)
        headers["Host"] = ""
    else:
        connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request("POST", f"/admin/{part}/{name}", body, headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    return _result(response.status, content)


def _result(status: int, content: bytes) -> Any:
    try:
        result = json.loads(content)
        if status != http.client.OK:
            raise TestKitError(result["error"])
    except (ValueError, LookupError, TypeError) as error:
        if isinstance(error, TestKitError):
            raise
        raise ConnectionError(f"the answer, with the status {status}, is none of a test API") from None
    return result


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._path)
