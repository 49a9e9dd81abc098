"""The levels of this process's loggers, as clients see and change them (resources of the type BROKER_LOGGER).

Loggers have the names that they have in Python; `root` is above all of them, and `odradek` above those of the
broker. Levels have Kafka's names. A level is changed until the process ends. A broker in a program does not
change them: logging belongs to the program.

Source: RuntimeLoggerManager and LoggingController of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from odradek.config.changes import DELETE, SET, ConfigOperation
from odradek.config.options import LOG_LEVELS
from odradek.wire.errors import ErrorCode, KafkaError

ROOT = "root"
LOGGERS = (
    "odradek",
    "odradek.apis",
    "odradek.audit",
    "odradek.authentication",
    "odradek.authorizer",
    "odradek.broker",
    "odradek.cleaner",
    "odradek.clients",
    "odradek.cluster",
    "odradek.connection",
    "odradek.connections",
    "odradek.console",
    "odradek.controller",
    "odradek.coordinator",
    "odradek.coordinators",
    "odradek.data",
    "odradek.disks",
    "odradek.fetch",
    "odradek.flush",
    "odradek.kafka07",
    "odradek.metadata",
    "odradek.peers",
    "odradek.produce",
    "odradek.replication",
    "odradek.share",
    "odradek.slow",
    "odradek.timers",
    "odradek.topics",
    "odradek.turn",
    "odradek.work",
    "odradek.workers",
    "odradek.zookeeper",
    "odradek.zookeeper.client",
)
"""The loggers of the broker. Python knows one when its module was imported, and modules are imported late."""


def levels() -> dict[str, int]:
    """The effective level of each logger of this process, by name."""
    return {name: one.getEffectiveLevel() for name, one in _loggers().items()}


def check_levels(operations: Iterable[ConfigOperation]) -> None:
    """Refuse with KafkaError a change that makes no sense; the codes are Kafka's."""
    loggers: Mapping[str, logging.Logger] = _loggers()
    for name, kind, value in operations:
        if kind not in (SET, DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The level of a logger can be set or deleted, not changed by {kind}.",
            )
        if name not in loggers:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if kind == SET and value not in LOG_LEVELS:
            known = ", ".join(sorted(LOG_LEVELS))
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} cannot have the level {value}; there are {known}."
            )
        if kind == DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The root logger always has a level.")


def change_levels(operations: Iterable[ConfigOperation]) -> None:
    """A change that `check_levels` has let in. A logger without a level has that of the one above it."""
    logging.addLevelName(LOG_LEVELS["TRACE"], "TRACE")
    loggers = _loggers()
    for name, kind, value in operations:
        level = logging.NOTSET if kind == DELETE or value is None else LOG_LEVELS[value]
        loggers[name].setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    own = {name: logging.getLogger(name) for name in LOGGERS}
    others = {
        name: one
        for name, one in list(logging.root.manager.loggerDict.items())
        if isinstance(one, logging.Logger)
    }
    return {ROOT: logging.root, **own, **others}
