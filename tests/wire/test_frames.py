"""Frames: which header goes with which version, and that the size prefix is right."""

import struct
import warnings

import pytest

from odradek.wire.codec import decoder
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import read_request_header, read_response, request_frame, response_parts
from odradek.wire.messages import api_keys, find, flexible_since
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceRequest, ProduceResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.collecting import collected


def test_a_request_has_a_plain_client_id_and_then_tags_if_it_is_flexible():
    head = "0003 0008 00000007 0003 616263"
    assert request_frame(MetadataRequest(), 8, 7, "abc").hex(" ").startswith("00 00 00 14 " + spaced(head))
    head = "0003 0009 00000007 0003 616263 00"
    frame = request_frame(MetadataRequest(), 9, 7, "abc")
    assert frame.hex(" ").startswith("00 00 00 13 " + spaced(head))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def spaced(text):
    return bytes.fromhex(text).hex(" ")


def test_header_and_message_of_every_api_are_found_again():
    with collected() as failures:
        for request in [find(api_key)[0] for api_key in api_keys()]:
            for version in (request.versions[0], request.versions[-1]):
                with failures.of(f"{request.__name__} version {version}"):
                    check_that_it_is_found_again(request, version)


def check_that_it_is_found_again(request, version):
    frame = request_frame(request(), version, 99, "me")
    header, position = read_request_header(frame, 4)
    assert (header.api_key, header.api_version) == (request.api_key, version)
    assert (header.correlation_id, header.client_id) == (99, "me")
    assert decoder(request, version)(frame, position)[1] == len(frame)


def test_a_client_id_of_null_reads_as_empty():
    frame = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 0, 1, None)
    assert frame[12:14] == b"\xff\xff"
    assert read_request_header(frame, 4)[0].client_id == ""


def test_tags_of_a_header_are_passed_over():
    header = bytes.fromhex("0003 0009 00000007 0000 02 00 01 aa 05 02 bbcc")
    assert read_request_header(header, 0)[1] == len(header)


def test_a_newer_version_of_an_api_has_the_flexible_header():
    header = bytes.fromhex("0012 0063 00000007 0001 61 00")
    found, position = read_request_header(header, 0)
    assert (found.api_version, position) == (99, len(header))


def test_an_unknown_api_reads_with_the_plain_header():
    header = bytes.fromhex("7fff 0000 00000007 0001 61")
    found, position = read_request_header(header, 0)
    assert (found.api_key, found.client_id, position) == (0x7FFF, "a", len(header))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "0003 0009 00000007 00",
        "0003 0009 00000007 0005 6162",
        "0003 0009 00000007 0000",
        "0003 0009 00000007 0000 01 00 05 aa",
        "0003 0009 00000007 0000 ffffffffffff",
    ],
)
def test_what_is_no_header_is_malformed(header):
    with pytest.raises(MalformedMessage):
        read_request_header(bytes.fromhex(header), 0)


def test_a_client_id_that_is_not_utf_8_is_read_with_replacements():
    header, _ = read_request_header(bytes.fromhex("0003 0009 00000007 0001 ff 00"), 0)
    assert header.client_id == "\ufffd"


def test_a_response_has_tags_after_the_correlation_id_if_it_is_flexible():
    assert response_parts(ProduceResponse(), 8, 5) == [bytes.fromhex("0000000c 00000005 00000000 00000000")]
    assert response_parts(ProduceResponse(), 9, 5) == [bytes.fromhex("0000000b 00000005 00 01 00000000 00")]


def test_an_api_versions_response_never_has_them():
    (frame,) = response_parts(ApiVersionsResponse(error_code=35), 3, 5)
    assert frame == bytes.fromhex("0000000c 00000005 0023 01 00000000 00")
    assert read_response(frame[4:], ApiVersionsRequest, 3) == (5, ApiVersionsResponse(error_code=35))


def test_the_size_counts_parts_that_are_no_buffers():
    class Source:
        def __len__(self):
            return 123456

    source = Source()
    partition = PartitionData(partition_index=0, records=source)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    for version in (3, 4, 12):
        parts = response_parts(response, version, 1)
        assert source in parts
        assert all(len(part) for part in parts)
        assert struct.unpack(">i", parts[0][:4])[0] == sum(map(len, parts)) - 4


def test_a_response_is_read_by_the_request_it_answers():
    response = ProduceResponse(throttle_time_ms=7)
    for version in (1, 9, 13):
        frame = b"".join(response_parts(response, version, 1234))
        assert read_response(frame[4:], ProduceRequest, version) == (1234, response)


@pytest.mark.parametrize("frame", ["", "000000", "00000001 00", "00000001 01 00 09 00"])
def test_what_is_no_response_is_malformed(frame):
    with pytest.raises(MalformedMessage):
        read_response(bytes.fromhex(frame), ProduceRequest, 9)


def test_bytes_after_a_response_are_malformed():
    frame = b"".join(response_parts(ProduceResponse(), 9, 1))[4:]
    with pytest.raises(MalformedMessage, match="1 bytes follow"):
        read_response(frame + b"\0", ProduceRequest, 9)


def test_kafka_python_makes_the_same_frames():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol.consumer.fetch import FetchRequest as TheirFetchRequest
    for version in (4, 11, 12):
        theirs = TheirFetchRequest[version](
            replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1000, isolation_level=0,
            session_id=0, session_epoch=-1, topics=[], forgotten_topics_data=[], rack_id="",
        )  # fmt: skip
        theirs.with_header(correlation_id=42, client_id="us")
        ours = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000)
        assert request_frame(ours, version, 42, "us") == bytes(theirs.encode(header=True, framed=True))


def test_flexible_headers_follow_the_messages():
    assert flexible_since(17) is None
    assert flexible_since(47) is None
    for api_key in api_keys():
        request, response = find(api_key)
        for version in request.versions:
            first = flexible_since(api_key)
            flexible = first is not None and version >= first
            assert request.is_flexible(version) == response.is_flexible(version) == flexible
