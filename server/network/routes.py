"""The APIs that are served, looked up by the 32 bits of a frame that hold API key and version."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.server.network._pipeline import Route
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import API_VERSIONS

if TYPE_CHECKING:
    from odradek.apis.declaration import Served

_version_refusal = struct.Struct(">iihihhh").pack


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RequestMetrics:
    """Metrics of the requests of one version of an API since the start."""

    requests: int
    """Answered, or not to be answered."""
    remembered: int
    """Requests whose beginning their connection knew: they were not decoded."""
    errors: dict[int, int]
    """Error codes other than 0 in the responses, and how often each was there."""
    bytes_in: int
    bytes_out: int
    """Frames with their sizes."""
    seconds: float
    """From the whole request to the ready response, with all waiting, of all requests together."""


class Routes:
    """A route says how one version of one API is decoded, handled and answered; it is made on first use."""

    __slots__ = ("_apis", "_interposed", "found")

    def __init__(self, apis: Mapping[int, Served]) -> None:
        self._apis = apis
        self._interposed: dict[int, Callable[[Served], Served]] = {}
        self.found: dict[int, Route] = {}

    def resolve(self, key_and_version: int) -> Route | None:
        """None when this API or this version of it is not served."""
        route = self.found.get(key_and_version)
        if route is not None:
            return route
        api_key, api_version = key_and_version >> 16, key_and_version & 0xFFFF
        served = self._apis.get(api_key)
        if served is None or api_version not in served.versions:
            return None
        route = self.found[key_and_version] = Route(api_key, api_version, served)
        if api_key in self._interposed:
            route.interpose(self._interposed[api_key](served))
        return route

    def interpose(self, api_key: int, make: Callable[[Served], Served] | None) -> None:
        """For the test kit: all requests of an API go to what `make` returns for its handler; None: as ever.
        An API that nobody has asked for is not made for this. KeyError: it is not served."""
        if api_key not in self._apis:
            raise KeyError(api_key)
        if make is None:
            self._interposed.pop(api_key, None)
        else:
            self._interposed[api_key] = make
        for route in self.found.values():
            if route.api_key == api_key:
                route.interpose(None if make is None else make(self._apis[api_key]))

    @property
    def api_keys(self) -> Collection[int]:
        """The keys of all APIs that are served."""
        return list(self._apis)

    def served(self, api_key: int) -> Served:
        """An API that is served."""
        return self._apis[api_key]

    def made(self, api_key: int) -> Served | None:
        """An API that was asked for before; None of another, which is not made for this."""
        was_asked = any(route.api_key == api_key for route in list(self.found.values()))
        return self._apis[api_key] if was_asked else None

    def prepare(self, api_key: int) -> None:
        """Makes what is made at the first request, for an API's newest version, if it is served."""
        if api_key in self._apis:
            self.resolve(api_key << 16 | self._apis[api_key].versions[-1])

    def metrics(self) -> dict[tuple[str, int], RequestMetrics]:
        """By names of APIs as in Kafka's metrics and versions; those alone that have been asked for. May be
        called in any thread."""
        return {
            (route.api_name, route.api_version): RequestMetrics(
                route.requests,
                route.from_prefix,
                dict(route.errors),
                route.bytes_in,
                route.bytes_out,
                route.nanoseconds / 1e9,
            )
            for route in list(self.found.values())
            if route.requests
        }

    def refuse_version(self, correlation_id: int) -> bytes:
        """The response to an ApiVersions request of a version that we do not know (KIP-511): version 0 with
        UNSUPPORTED_VERSION and our own range of ApiVersions, so that the client can ask again."""
        versions = self._apis[API_VERSIONS].versions
        error = int(ErrorCode.UNSUPPORTED_VERSION)
        return _version_refusal(16, correlation_id, error, 1, API_VERSIONS, versions.start, versions.stop - 1)
