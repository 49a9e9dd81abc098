"""`share.auto.offset.reset`: where a share group begins to read a partition."""

from __future__ import annotations

import re

EARLIEST = -2
LATEST = -1
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"\+?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE | re.ASCII
)


def reset_timestamp(value: str, now_ms: int) -> int:
    """EARLIEST, LATEST, or milliseconds since 1970: as ListOffsets has it. The value has been checked."""
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    found = _DURATION.fullmatch(value.removeprefix(_BY_DURATION))
    assert found is not None, value
    days, hours, minutes, seconds = found.groups(default="0")
    back_ms = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60_000 + int(float(seconds) * 1000)
    return max(now_ms - back_ms, 0)
