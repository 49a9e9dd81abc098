"""The test kit over HTTP, for tests in other languages and in other processes: `odradek serve --test-api`.

    POST /admin/faults/add {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}

Each operation of the kit is a path, `/admin/PART/OPERATION`, that takes its arguments as JSON and answers
with its result. Where a part has `all`, `add` and `remove`, these are also GET and POST of `/admin/PART` and
DELETE of `/admin/PART/ID`. A refusal has the status 400 and `{"error": "one sentence"}`.

There is no login: whoever reaches the address may break the broker. A page in a browser does not: bodies
have to be `application/json`, for which a browser asks first, and nothing here permits it; and the header
`Host` has to be an address or `localhost`, so that no name of others leads here.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.server.network.http_server import JSON, HttpRequest, HttpResponse, HttpServer
from odradek.server.test_kit.kit import PARTS, TestKitError

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit

BODY_BYTES_MAX = 1 << 20
ROOT = "/admin/"


class HttpApi:
    """Serves at an address from `open` to `close`."""

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._http = HttpServer(
            self._respond, methods=("GET", "POST", "DELETE"), body_bytes_max=BODY_BYTES_MAX
        )

    async def open(self, host: str, port: int, bound: Sequence[socket.socket] = ()) -> int:
        """Opens it, as `HttpServer.open`."""
        return await self._http.open(host, port, bound)

    async def close(self) -> None:
        await self._http.close()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if not _is_ours(request.headers.get("host", "")):
            return _refusal(403, "the header Host names neither an address nor localhost")
        found = _operation_of(request)
        if found is None:
            paths = ", ".join(f"{ROOT}{name}/OPERATION" for name in PARTS)
            return _refusal(404, f"there are POST {paths}")
        operation, arguments = found
        if request.method == "POST":
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                return _refusal(400, f"Content-Type has to be {JSON}")
            try:
                given = json.loads(request.body or b"{}")
            except ValueError as error:
                return _refusal(400, f"the body is not JSON: {error}")
            if not isinstance(given, dict):
                return _refusal(400, "the body has to be a JSON object: the arguments by their names")
            arguments = {**given, **arguments}
        try:
            result = await self._kit.call(operation, arguments)
        except TestKitError as error:
            return _refusal(400, str(error))
        return HttpResponse(200, JSON, _json(result))


def _operation_of(request: HttpRequest) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments; None of a path that there is not."""
    if not request.path.startswith(ROOT):
        return None
    part, _, rest = request.path.removeprefix(ROOT).partition("/")
    if part not in PARTS or "/" in rest:
        return None
    if request.method == "DELETE":
        return f"{part}.remove", {"id": rest} if rest else {}
    if request.method == "GET":
        return (f"{part}.all", {}) if not rest else None
    return f"{part}.{rest or 'add'}", {}


def _is_ours(host: str) -> bool:
    """Whether a page of others cannot have led here. Over a socket of the file system there is no host."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    if name in ("", "localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _json(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _refusal(status: int, sentence: str) -> HttpResponse:
    return HttpResponse(status, JSON, _json({"error": sentence}))
