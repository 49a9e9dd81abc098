"""Lets the tests here import `memory_disk`: with importlib's import mode a test folder is on no path. Indexes
are mapped here however small they are, as those of the logs that tests can afford mostly are not.
"""

import pathlib
import sys

import pytest

from odradek.storage.log import indexes

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def _all_indexes_are_mapped():
    usual, indexes.MAP_INDEXES_FROM_BYTES = indexes.MAP_INDEXES_FROM_BYTES, 1
    yield
    indexes.MAP_INDEXES_FROM_BYTES = usual
