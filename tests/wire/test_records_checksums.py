"""CRC-32C is that of the package, and costs less to import."""

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.checksums import crc32c


@given(st.binary(max_size=5000))
def test_the_sum_is_that_of_the_package(data):
    assert crc32c(data) == crc32c(memoryview(data)) == package.crc32c(data)


def test_the_known_answer_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
