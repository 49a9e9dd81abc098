"""CRC-32C is that of the package, and costs less to import."""

import subprocess
import sys

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.checksums import crc32c


@given(st.binary(max_size=5000))
def test_the_sum_is_that_of_the_package(data):
    assert crc32c(data) == crc32c(memoryview(data)) == package.crc32c(data)


def test_the_known_answer_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283


def test_importing_it_reads_no_metadata_and_parses_no_arguments():
    program = (
        "import sys, odradek.wire.records\n"
        "print(sorted({'argparse', 'importlib.metadata', 'crc32c'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"
