"""The node of a configuration: a broker or a controller, for a process of its own."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.main_loop import NodeServer


def new_node(config: BrokerConfig, on_end: Callable[[], None]) -> NodeServer:
    """A node for `main_loop.run`."""
    if config.controller is not None:
        from odradek.server.controlling.controller_server import ControllerServer

        return ControllerServer(config, owns_process=True, on_end=on_end)
    from odradek.server.broker import BrokerServer

    return BrokerServer(
        config, after_loading=gc.freeze, polls_before_sleep=True, owns_process=True, on_end=on_end
    )
