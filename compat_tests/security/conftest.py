"""A broker with SASL for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.secured import secured_odradek
from compat_tests.security.certificates import Authority
from odradek import Broker
from tests.tiers import NIGHTLY

# It needs a Kerberos of the system; by its own name it runs at any time.
collect_ignore = [] if NIGHTLY else ["test_kerberos.py"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def authority(certificates: Authority) -> Authority:
    return certificates


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured_odradek(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def sealed(certificates: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The same over TLS."""
    options = certificates.key_store("PEM", "broker", certificates.server())
    with secured_odradek(tmp_path_factory.mktemp("sealed"), options, listener="SASL_SSL") as broker:
        yield broker


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Its sessions end after two seconds."""
    directory = tmp_path_factory.mktemp("short")
    with secured_odradek(directory, connections_max_reauth_ms="2000") as broker:
        yield broker
