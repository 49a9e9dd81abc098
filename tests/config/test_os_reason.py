"""Reasons of errors of the system, in words for people."""

import errno
import os

import pytest

from odradek.config.os_reason import reason_of
from odradek.server.metadata.meta_properties import unusable


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/t-0"), "the disk is full"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), os.strerror(errno.EDQUOT)),
        (OSError(errno.EIO, os.strerror(errno.EIO), "/data/t-0"), os.strerror(errno.EIO)),
        (OSError("the disk returns other bytes"), "the disk returns other bytes"),
    ],
)
def test_a_full_disk_is_told_as_people_say_it_and_the_rest_as_the_system_does(error, reason):
    assert reason_of(error) == reason


def test_a_directory_on_a_full_disk_is_told_so():
    told = unusable("/data", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(told) == "/data (log.dirs) cannot be used: the disk is full."
