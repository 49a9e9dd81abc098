"""The roles of a node."""

from enum import Enum


class Role(Enum):
    """`config/roles.py` says by which options a node has which."""

    ALONE = "alone"
    BROKER = "broker"
    CONTROLLER = "controller"
