"""Each screen of the console."""

from odradek.console.screens import (
    configs,
    connections,
    group,
    groups,
    login,
    message,
    messages,
    overview,
    partitions,
    segments,
    tail,
    topics,
    writers,
)

SCREENS = [
    *login.SCREENS,
    *overview.SCREENS,
    *topics.SCREENS,
    *messages.SCREENS,
    *message.SCREENS,
    *tail.SCREENS,
    *partitions.SCREENS,
    *writers.SCREENS,
    *segments.SCREENS,
    *groups.SCREENS,
    *group.SCREENS,
    *configs.SCREENS,
    *connections.SCREENS,
]
