"""The log under a state machine, as the coordinator sees it; the server makes one of a storage partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from odradek.coordinator.effects import LoggedRecord, LogRecord
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError


class CoordinatorLog(Protocol):
    """One partition of an internal topic, led by this node."""

    @property
    def is_replicated(self) -> bool:
        """Whether there are other replicas: the result of an append may be long in coming then."""

    def append(
        self,
        records: list[LogRecord],
        then: Callable[[KafkaError | None], None],
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Write the records as one batch, all or none, in the order of the calls.

        With a `producer` (id and epoch) the batch is part of its transaction.

        `then` is called exactly once, never before `append` has returned, in the order of the appends: with
        None when the records are as safe as the topic's settings promise, else with the error. It is also the
        way to refuse (a batch over the limit, a full disk): `append` itself raises nothing.
        """

    def check_producer(self, producer: tuple[int, int], verified: Any) -> None:
        """Refuse with KafkaError what `append` would refuse of this producer at this moment. To be called
        before a machine decides: it applies what it appends, and would have to be loaded again.

        `verified` is the result of the transaction's verification, None where none is needed.
        """

    def check_marker(self, marker: EndMarker) -> None:
        """The same for `append_marker`."""

    def append_marker(self, marker: EndMarker, then: Callable[[KafkaError | None], None]) -> None:
        """End the producer's transaction in this partition. As `append`, and in one order with it."""

    def read_all(self) -> Iterator[LoggedRecord]:
        """Every record from the log's start to its end, lazily and in order; raises KafkaError.

        Records of transactions come as `TransactionalRecord`, the ends of transactions as `MarkerRecord`.
        """

    @property
    def read_from(self) -> int:
        """The offset of the first record that `read_all` has read, or would have: no offset of a record that
        was read or appended since is below it plus the number of records before."""

    def delete_before(self, offset: int, then: Callable[[KafkaError | None], None]) -> None:
        """Let the log begin at a later offset, as soon as all of it is on the disk: what is kept may stand
        for what is deleted. A crash may undo it. `then` gets None or an error, such as that of an offset
        after the high watermark."""

    def waits_for_replicas(self, then: Callable[[KafkaError | None], None]) -> bool:
        """Whether other replicas lack something of what `read_all` has read. If so, `then` is called once,
        later: with None when those in sync have it, with the error where they will not.
        """

    def check_replicas(self) -> None:
        """Refuse with KafkaError where an append with acks=all would be refused: too few replicas are in
        sync, or another node leads."""
