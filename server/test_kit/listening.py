"""Opens the test API of a broker at its addresses (`odradek.test.api.listen`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.config.broker_config import TEST_API_LISTEN, UNIX
from odradek.config.config_error import ConfigError
from odradek.server.network.http_server import listen_reason
from odradek.server.network.unix_sockets import bind_privately
from odradek.server.test_kit.http_api import HttpApi

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit

logger = logging.getLogger("odradek.broker")


async def open_test_api(
    kit: TestKit, addresses: Iterable[tuple[str, int] | str], ending: AsyncExitStack
) -> list[int]:
    """The real ports, of those that have one. ConfigError if an address cannot be had."""
    ports = [(await _open(kit, one, ending), isinstance(one, str)) for one in addresses]
    return [port for port, is_path in ports if not is_path]


async def _open(kit: TestKit, address: tuple[str, int] | str, ending: AsyncExitStack) -> int:
    api = HttpApi(kit)
    try:
        if isinstance(address, str):
            port = await api.open("", 0, [bind_privately(address, ending)])
        else:
            port = await api.open(*address)
    except OSError as error:
        shown = f"{UNIX}{address}" if isinstance(address, str) else f"{address[0]}:{address[1]}"
        raise ConfigError(
            f"{TEST_API_LISTEN}: nothing can listen at {shown}: {listen_reason(error)}."
        ) from None
    ending.push_async_callback(api.close)
    if not isinstance(address, str):
        logger.warning(
            "the test API is open at %s:%d: whoever reaches it may break this broker", address[0], port
        )
    return port
