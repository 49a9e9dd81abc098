"""The place of a controller in a network."""

from typing import NamedTuple


class ControllerEndpoint(NamedTuple):
    """Where others reach this controller."""

    listener: str
    host: str
    port: int
