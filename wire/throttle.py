"""Where a response says for how long its client has to wait (`throttle_time_ms`, KIP-219)."""

from __future__ import annotations

from typing import Any

from odradek.wire.frames import API_VERSIONS
from odradek.wire.schema import fields_of

THROTTLE_TIME = "throttle_time_ms"
_HEAD_BYTES = 8
"""Size and correlation id."""


def has_throttle_time(response: Any) -> bool:
    """Whether responses of this class of messages have it in any version."""
    return any(field.name == THROTTLE_TIME for field in fields_of(response))


def throttle_position(response: Any, version: int) -> int:
    """Where the int32 is in a frame without tagged fields: from its begin, or, if negative, from its end. 0:
    not in this version, or at no fixed place."""
    fields = [field for field in fields_of(response) if field.exists_in(version)]
    names = [field.name for field in fields if not field.is_tagged_in(version)]
    is_flexible = response.is_flexible(version)
    if names and names[0] == THROTTLE_TIME:
        return _HEAD_BYTES + (1 if is_flexible and response.api_key != API_VERSIONS else 0)
    if names and names[-1] == THROTTLE_TIME:
        return -5 if is_flexible else -4
    return 0
