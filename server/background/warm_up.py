"""Preparation for the first requests after a start, before they come.

The modules of an API are imported, and its codecs made, when it is first asked for: that keeps the start
short. But it takes 10 to 100 ms for each API, in which the event loop serves nobody. So a broker that is
ready does it for what will be asked for soon: to write and to read at once, for groups and transactions
too when its data says that there were some, and a second later for the rest of what clients and tools ask
for. Modules are imported in a worker thread, which leaves the interpreter to the loop every few
milliseconds; codecs are made a step at a time, between the requests that come meanwhile. An API that is
asked for earlier is made then, as one that is not among these is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis import table
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.storage._reading import is_in_memory

if TYPE_CHECKING:
    from odradek.apis.table import Row
    from odradek.server.network.routes import Routes
    from odradek.wire.work import Work


class Part(NamedTuple):
    """APIs that are used together, and what else their first requests import."""

    apis: Mapping[int, Row]
    """A part of the table (`apis/table.py`)."""
    others: tuple[str, ...] = ()
    """Modules of the packages."""

    @property
    def modules(self) -> tuple[str, ...]:
        """All that a broker imports for these, each once."""
        return (*dict.fromkeys(f"apis.{row.broker}" for row in self.apis.values()), *self.others)


RECORDS = Part(table.RECORDS)
GROUPS = Part(table.GROUPS, ("coordinator.group_coordinator", "server.coordination.coordinator_log"))
TRANSACTIONS = Part(table.TRANSACTIONS, ("coordinator.transactions.coordinator", "apis.write_txn_markers"))
ADMINISTRATION = Part(table.ADMINISTRATION)


def parts_at_once(topics: Collection[str]) -> list[Part]:
    """Parts that clients of a broker with these topics will use first."""
    parts = [RECORDS]
    if OFFSETS_TOPIC in topics:
        parts.append(GROUPS)
    if TRANSACTIONS_TOPIC in topics:
        parts.append(TRANSACTIONS)
    return parts


def parts_later(topics: Collection[str]) -> list[Part]:
    """Parts that `parts_at_once` leaves out for the same topics."""
    at_once = parts_at_once(topics)
    return [part for part in (GROUPS, TRANSACTIONS, ADMINISTRATION) if part not in at_once]


def warming_up(routes: Routes, parts: Iterable[Part]) -> Work[None]:
    """The newest version of each API: those before it have the modules then, and lack their codec alone."""
    for part in parts:
        for module in part.modules:
            yield partial(import_module, f"odradek.{module}")
        for key in part.apis:
            routes.prepare(key)
            yield None
    # Without the compiled parts the first question makes its own tools.
    is_in_memory(memoryview(bytes(1)), 0, 1)
