"""The brokers and clients of the tests of the client."""

from tests.client.conftest import (
    bootstrap,
    broker,
    cluster,
    proxied_broker,
    proxy,
    start_broker,
    through_proxy,
)

__all__ = ["bootstrap", "broker", "cluster", "proxied_broker", "proxy", "start_broker", "through_proxy"]
