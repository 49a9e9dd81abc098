"""The hot parts of the server: compiled where that was built, else in plain Python; `COMPILED` says which."""

from typing import TYPE_CHECKING

__all__ = ["BUFFER_BYTES", "BUFFER_KEPT_BYTES_MAX", "COMPILED", "GatheredTurn", "Receiver", "Sender"]

from odradek.server._hot_path_python import BUFFER_BYTES, BUFFER_KEPT_BYTES_MAX, Sender

if TYPE_CHECKING:  # the twins are alike; the plain one says its types
    from odradek.server._hot_path_python import GatheredTurn, Receiver

    COMPILED: bool
else:
    try:
        from odradek.server._hot_path import GatheredTurn, Receiver

        COMPILED = True
    except ImportError:
        from odradek.server._hot_path_python import GatheredTurn, Receiver

        COMPILED = False
