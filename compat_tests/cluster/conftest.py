"""A controller, a broker of Kafka and a node of ours, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.quorum import Controllers, KafkaMember, OdradekMember

KAFKA_ID, ODRADEK_ID = 7, 1


@pytest.fixture(scope="module")
def controllers() -> Iterator[Controllers]:
    with Controllers() as started:
        assert isinstance(started, Controllers)
        yield started


@pytest.fixture(scope="module")
def odradek(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, ODRADEK_ID) as started:
        yield started


@pytest.fixture(scope="module")
def kafka(controllers: Controllers) -> Iterator[KafkaMember]:
    with KafkaMember(controllers, KAFKA_ID) as started:
        assert isinstance(started, KafkaMember)
        yield started
