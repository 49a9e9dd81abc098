"""Opens the test API of a broker at its addresses (`odradek.test.api.listen`)."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.config.broker_config import TEST_API_LISTEN, UNIX
from odradek.config.config_error import ConfigError
from odradek.server.network.http_server import listen_reason
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
            port = await api.open("", 0, [_bound(address, ending)])
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


def _bound(path: str, ending: AsyncExitStack) -> socket.socket:
    """A socket of the file system that no other user may open."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        # What a broker that was killed has left.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bound.bind(path)
        os.chmod(path, 0o600)
    except OSError:
        bound.close()
        raise
    ending.callback(_remove, path)
    return bound


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
