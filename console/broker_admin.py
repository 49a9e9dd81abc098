"""Facts that brokers tell a console that they have started, at Unix sockets in a private folder.

    told = ask_brokers(folder, "connections", principal="User:ann", host="10.0.0.9")     # one for each broker

The brokers' authorizer decides for the person whom a request names (`server/web_console/admin.py`).
"""

import http.client
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from odradek.client.client_error import ClientError, Unreachable
from odradek.console.access import Forbidden
from odradek.wire.errors import ErrorCode

SOCKET_PREFIX = "admin-"
TIMEOUT_S = 6.0
RESPONSE_BYTES_MAX = 32 << 20
NOT_TOLD = (
    "these brokers do not tell: Kafka's protocol has no request for it, and a broker of ours tells only the "
    "console that it has started itself (odradek serve --console)"
)


class NotTold(ClientError):
    """The console was not started by a broker."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Opens it. OSError."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def ask_brokers(
    folder: str | None, operation: str, *, principal: str, host: str, **arguments: Any
) -> list[dict[str, Any]]:
    """The responses of the brokers, by their node ids; those that do not answer are left out. Blocks.
    ClientError if a broker refuses, or none answers."""
    if folder is None:
        raise NotTold(NOT_TOLD)
    request = {"principal": principal, "host": host, **arguments}
    told = []
    failure = "there is no socket of one"
    for path in _sockets(folder):
        try:
            told.append(_asked(path, operation, request))
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = str(error) or type(error).__name__
    if not told:
        raise Unreachable(f"no broker tells the console of itself: {failure}")
    return sorted(told, key=lambda one: int(one["node_id"]))


def _sockets(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(SOCKET_PREFIX)]


def _asked(path: str, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    connection = _UnixConnection(path)
    try:
        connection.request("POST", f"/admin/{operation}", json.dumps(request))
        response = connection.getresponse()
        body = response.read(RESPONSE_BYTES_MAX)
    finally:
        connection.close()
    told: dict[str, Any] = json.loads(body)
    if response.status == 403:
        raise Forbidden(told["error"], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if response.status == 404:
        raise ClientError(told["error"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if response.status != 200:
        raise ValueError(told.get("error", f"status {response.status}"))
    return told
