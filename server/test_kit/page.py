"""`python -m odradek.server.test_kit.page` prints docs/testing-apis.md: for each API, by what
faults choose its requests, and where its response has the error.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.apis.declaration import AnyApi
from odradek.apis.table import MODULES, declared
from odradek.server.test_kit.named import KINDS, TOPIC, TOPIC_ID, Place, error_places, kinds_named
from odradek.server.test_kit.partial_errors import READS
from odradek.wire.messages import api_name
from odradek.wire.throttle import has_throttle_time

HEAD = """\
# Faults of each API

This page is made by `python -m odradek.server.test_kit.page` from the declarations of the APIs.

A fault ([testing-faults.md](testing-faults.md)) chooses requests by what they name. Its error is where the
response has a place for it: for each thing that the fault names, or else for the whole request. `*`: in the
versions that have it. What only reads is served, and the error stands in place of what was read.

| API | versions | chosen by | places of errors | reads only | throttle time |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"| {' | '.join(_row(declared(key)))} |\n" for key in sorted(MODULES))


def _row(api: AnyApi) -> Iterator[str]:
    name, versions = api_name(api.request.api_key), api.versions
    named = {TOPIC if kind == TOPIC_ID else kind for kind in kinds_named(api.request)}
    yield name
    yield f"{versions[0]} to {versions[-1]}" if len(versions) > 1 else str(versions[0])
    yield ", ".join(kind.replace("_", " ") for kind in KINDS if kind in named) or "-"
    places: dict[str, int] = {}
    for version in versions:
        for place in error_places(api.response, version):
            places[_told(place)] = places.get(_told(place), 0) + 1
    yield (
        ", ".join(place if count == len(versions) else f"{place}*" for place, count in places.items())
        or "none"
    )
    yield "yes" if name in READS else ""
    yield "yes" if has_throttle_time(api.response) else ""


def _told(place: Place) -> str:
    return f"`{'.'.join(place.lists)}`" if place.lists else "whole"


if __name__ == "__main__":
    print(page(), end="")
