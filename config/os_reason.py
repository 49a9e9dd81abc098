"""Reasons of errors of the system, in words for people."""

import errno

DISK_IS_FULL = "the disk is full"


def reason_of(error: OSError) -> str:
    """Text for the end of a sentence. "No space left on device" is told as people say it."""
    if error.errno == errno.ENOSPC:
        return DISK_IS_FULL
    return error.strerror or str(error)
