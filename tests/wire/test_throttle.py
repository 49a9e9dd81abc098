"""Where a response says for how long its client has to wait."""

import pytest

from odradek.wire.frames import response_parts
from odradek.wire.messages import find
from odradek.wire.throttle import has_throttle_time, throttle_position

WAIT_MS = 0x31323334
REMEMBERED = (0, 2, 8, 9, 12, 68)
"""APIs whose responses are kept as frames: Produce, ListOffsets, OffsetCommit, OffsetFetch, Heartbeat,
ConsumerGroupHeartbeat."""


@pytest.mark.parametrize("api_key", REMEMBERED)
def test_the_wait_is_where_the_encoder_puts_it(api_key):
    _, response = find(api_key)
    assert has_throttle_time(response)
    positions = []
    for version in response.versions:
        fields = {} if api_key in (0, 2, 8, 9) else {"error_code": 0}
        message = response(throttle_time_ms=WAIT_MS, **fields)
        frame = b"".join(response_parts(message, version, 0))
        position = throttle_position(response, version)
        if position:
            start = position % len(frame)
            assert frame[start : start + 4] == WAIT_MS.to_bytes(4, "big"), version
        else:
            assert WAIT_MS.to_bytes(4, "big") not in frame, version
        positions.append(position)
    assert any(positions)


def test_a_response_without_the_field_has_no_place_for_it():
    _, handshake = find(17)
    assert not has_throttle_time(handshake)
    assert throttle_position(handshake, 1) == 0
