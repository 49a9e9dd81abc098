"""Each screen of the console."""

from odradek.console.screens import (
    configs,
    group,
    groups,
    login,
    message,
    messages,
    partitions,
    tail,
    topics,
)

SCREENS = [
    *login.SCREENS,
    *topics.SCREENS,
    *messages.SCREENS,
    *message.SCREENS,
    *tail.SCREENS,
    *partitions.SCREENS,
    *groups.SCREENS,
    *group.SCREENS,
    *configs.SCREENS,
]
