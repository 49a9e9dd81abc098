"""Each screen of the console."""

from odradek.console.screens import (
    configs,
    export,
    group,
    groups,
    login,
    message,
    messages,
    partitions,
    produce,
    tail,
    topics,
)

SCREENS = [
    *login.SCREENS,
    *topics.SCREENS,
    *messages.SCREENS,
    *export.SCREENS,
    *message.SCREENS,
    *produce.SCREENS,
    *tail.SCREENS,
    *partitions.SCREENS,
    *groups.SCREENS,
    *group.SCREENS,
    *configs.SCREENS,
]
