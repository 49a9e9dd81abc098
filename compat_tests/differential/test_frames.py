"""ApiVersions, and what is no request at all."""

from __future__ import annotations

import struct

import pytest

from compat_tests.differential.harness import Pair
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.produce import ProduceRequest

UNSUPPORTED_VERSION = 35


def test_what_is_advertised_has_kafkas_highest_versions(pair: Pair) -> None:
    for version in pair.versions(ApiVersionsRequest):
        request = ApiVersionsRequest(client_software_name="differential", client_software_version="1.0")
        theirs, ours = (side.ask(request, version) for side in pair.sides)
        pair.compare(f"ApiVersions v{version}.error_code", theirs.error_code, ours.error_code)
        highest = {api.api_key: api.max_version for api in theirs.api_keys}
        lowest = {api.api_key: api.min_version for api in theirs.api_keys}
        for api in ours.api_keys:
            where = f"ApiVersions v{version}: API {api.api_key}"
            pair.compare(f"{where}.max_version", highest.get(api.api_key), api.max_version)
            assert api.min_version <= lowest[api.api_key], where
        keys = [api.api_key for api in ours.api_keys]
        assert keys == sorted(set(keys))


@pytest.mark.parametrize("name", ["", "bad name", "-x"])
def test_a_client_name_is_checked_alike(pair: Pair, name: str) -> None:
    for version in pair.versions(ApiVersionsRequest):
        if version >= 3:
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            theirs, ours = (side.ask(request, version) for side in pair.sides)
            pair.compare(f"ApiVersions v{version} name {name!r}", theirs.error_code, ours.error_code)
            for side in pair.sides:
                side.hang_up()


@pytest.mark.parametrize(
    ("cluster", "node_id"),
    [("own", 1), (None, -1), ("another", 1), ("own", 2), (None, 1), ("own", -1), ("another", 2)],
)
def test_who_takes_a_node_for_another_is_told_so_alike(pair: Pair, cluster: str | None, node_id: int) -> None:
    for version in pair.versions(ApiVersionsRequest):
        if version >= 5:
            answers = []
            for side in pair.sides:
                own = side.ask(DescribeClusterRequest(), 0).cluster_id
                request = ApiVersionsRequest(
                    client_software_name="differential",
                    client_software_version="1",
                    cluster_id=own if cluster == "own" else cluster,
                    node_id=node_id,
                )
                answer = side.ask(request, version)
                answers.append((answer.error_code, bool(answer.api_keys), bool(answer.supported_features)))
            pair.compare(f"ApiVersions v{version}", *answers)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(pair: Pair) -> None:
    frame = struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0)
    theirs, ours = (side.exchange(frame) for side in pair.sides)
    assert theirs is not None
    assert ours is not None
    assert struct.unpack(">ih", theirs[:6]) == struct.unpack(">ih", ours[:6]) == (7, UNSUPPORTED_VERSION)
    for side in pair.sides:
        side.hang_up()


NO_REQUESTS = {
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a version that is not served": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "a negative size": struct.pack(">i", -1),
    "a size of nothing": struct.pack(">i", 0),
    "a size over the limit": struct.pack(">i", 2**31 - 1),
    "a header that ends early": struct.pack(">ih", 2, 3),
    "a client id that ends after the frame": struct.pack(">ihhih", 10, 3, 0, 1, 500),
    "an array longer than the frame": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**30),
    "letters": b"GET / HTTP/1.1\r\n\r\n",
    "random bytes": struct.pack(">i", 64) + bytes(range(200, 256)) + bytes(8),
}


@pytest.mark.parametrize("what", NO_REQUESTS)
def test_what_is_no_request_closes_the_connection(pair: Pair, what: str) -> None:
    answers = [side.exchange(NO_REQUESTS[what], connection="bad", seconds=10) for side in pair.sides]
    for side in pair.sides:
        side.hang_up("bad")
    assert [answer is None for answer in answers] == [True, True]


TEXTS = {
    "Latin-1": b"m\xfcller",
    "no sequence": b"\xff\xfe\x80",
    "a sequence that is cut": b"\xe2\x82-\xf0\x9f\x98-\xc3",
    "longer than it has to be": b"\xc0\x80-\xe0\x80\x80",
    "half of a pair": b"\xed\xa0\x80-\xed\xb0\x80",
    "beyond Unicode": b"\xf5\x80\x80\x80-\xf4\x90\x80\x80",
}
"""Texts that are not UTF-8, as programs without a notion of encodings send them."""


@pytest.mark.parametrize("what", TEXTS)
def test_a_text_that_is_not_utf_8_is_read_alike(pair: Pair, what: str) -> None:
    def frame(key: int, body: bytes, version: int = 0) -> bytes:
        head = struct.pack(">hhi", key, version, 7) + text
        return struct.pack(">i", len(head + body)) + head + body

    text = struct.pack(">h", len(TEXTS[what])) + TEXTS[what]
    for side in pair.sides:
        assert side.exchange(frame(18, b"")) is not None, f"{side.name} does not answer ApiVersions"
    # The answers have the names of the groups and of the topics.
    described = [side.exchange(frame(15, struct.pack(">i", 1) + text)) for side in pair.sides]
    pair.compare(f"DescribeGroups, {what}", *map(_hexadecimal, described))
    of_topics = struct.pack(">i", 1) + text + struct.pack(">ii", 1, 0)
    fetched = [side.exchange(frame(9, text + of_topics, 1)) for side in pair.sides]
    pair.compare(f"OffsetFetch, {what}", *map(_hexadecimal, fetched))


def _hexadecimal(answer: bytes | None) -> str | None:
    return None if answer is None else answer.hex()


def test_half_a_message_closes_the_connection(pair: Pair) -> None:
    whole = request_frame(ProduceRequest(acks=1, timeout_ms=1000), 9, 1, "differential")
    short = struct.pack(">i", len(whole) - 4 - 3) + whole[4:-3]
    answers = [side.exchange(short, connection="bad", seconds=10) for side in pair.sides]
    for side in pair.sides:
        side.hang_up("bad")
    assert [answer is None for answer in answers] == [True, True]
