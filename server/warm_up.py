"""What the first requests after a start need, made before they come.

The modules of an API are imported, and its codecs made, when it is first asked for: that keeps the start
short. But it takes 10 to 40 ms for each API, in which the event loop serves nobody. So a broker that is ready
does it for what will be asked for soon: to write and to read always, for groups and transactions when its
data says that there were some. A step at a time, between the requests that come meanwhile; an API that
is asked for earlier is made then, as one that is not among these is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from odradek.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.storage.reading import is_in_memory
from odradek.wire.messages import find

if TYPE_CHECKING:
    from odradek.server.connection import Routes
    from odradek.wire.work import Work

# ApiVersions, Metadata, Produce, Fetch, ListOffsets
_OF_RECORDS = (18, 3, 0, 1, 2)
# FindCoordinator, OffsetFetch, JoinGroup, SyncGroup, Heartbeat, OffsetCommit, ConsumerGroupHeartbeat
_OF_GROUPS = (10, 9, 11, 14, 12, 8, 68)
# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
_OF_TRANSACTIONS = (22, 24, 25, 26, 28)


def keys_of_apis(topics: Collection[str]) -> Iterator[int]:
    """Those that clients of a broker with these topics will use first."""
    yield from _OF_RECORDS
    if OFFSETS_TOPIC in topics:
        yield from _OF_GROUPS
    if TRANSACTIONS_TOPIC in topics:
        yield from _OF_TRANSACTIONS


def warming_up(routes: Routes, topics: Collection[str]) -> Work[None]:
    """The newest version of each: those before it have the modules then, and lack their codec alone."""
    for key in keys_of_apis(topics):
        find(key)
        yield None
        routes.prepare(key)
        yield None
    # Without the compiled parts the first question makes its own tools.
    is_in_memory(memoryview(bytes(1)), 0, 1)
