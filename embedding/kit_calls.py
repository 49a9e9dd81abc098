"""Calls to the test kit of a broker in a child process, over its socket of the file system."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.config.broker_config import TEST_API_LISTEN, UNIX
from odradek.server.test_kit.kit import TestKitError


class KitSocket:
    """The address of the test kit of one child process, which may start again and again."""

    def __init__(self) -> None:
        # Not in the data directory: the path of a socket has 107 bytes at most.
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-kit-")
        self._path = Path(self._folder.name) / "kit.sock"

    @property
    def option(self) -> tuple[str, str]:
        """Name and value of the option that opens it."""
        return TEST_API_LISTEN, f"{UNIX}{self._path}"

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
