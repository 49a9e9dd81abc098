"""A broker in this process for all tests of a module, a client of it, and a proxy between the two; for what
writes, brokers in processes of their own.
"""

import pytest

import odradek
from compat_tests.kit.transaction_brokers import starting
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from tests.client.proxy import Proxy


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(num_partitions=1) as running:
        yield running


@pytest.fixture
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


@pytest.fixture
def proxy(broker):
    with Proxy(broker.port) as running:
        yield running


@pytest.fixture
def through_proxy(proxy):
    """A client that sees nothing but the proxy."""
    settings = ClientSettings(f"127.0.0.1:{proxy.port}", retry_ms=1, patience_ms=20_000)
    with Cluster(settings) as connected:
        yield connected


@pytest.fixture(scope="session")
def start_broker():
    """Starts brokers in processes of their own, behind a proxy that knows requests where wanted."""
    with starting(is_odradek=True) as start:
        yield start


@pytest.fixture(scope="session")
def bootstrap(start_broker):
    return start_broker().bootstrap


@pytest.fixture(scope="session")
def proxied_broker(start_broker):
    """Its connections can be cut."""
    return start_broker(proxied=True)
