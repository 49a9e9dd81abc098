"""Judges a history: which promises of transactions it breaks. No I/O, no clock; `test_checker.py` shows each.

In the style of Jepsen's workload for Kafka. What is no anomaly: transactions that ran at the same time may
interleave, differently in each partition, since Kafka takes no locks. So write cycles count only among those
that did not overlap. And the markers of one transaction come to its partitions one after the other: a reader
may see a part of a committed transaction for a moment, but nothing of one that is still open.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from compat_tests.kit.history import (
    Consumed,
    History,
    Outcome,
    Partition,
    Read,
    Records,
    Send,
    Transaction,
)


class Kind(enum.Enum):
    """What can go wrong."""

    LOST_WRITE = "a value of a committed transaction is not in the log"
    ABORTED_READ = "somebody read a value of a transaction that was aborted"
    INTERMEDIATE_READ = "somebody read a value before its transaction was to be committed"
    TORN = "a part of a transaction is in the log and a part is not"
    WRITE_CYCLE = "transactions that did not overlap are each before the other (G0)"
    ORDER = "the log has values in another order than they were sent"
    DUPLICATE = "a value is in the log twice"
    INCONSISTENT = "an offset has had two values, or a value two offsets"
    UNSENT = "somebody read a value that nobody sent there"
    SKIPPED = "a reader passed over a value, or read one again"
    OFFSETS_LOST = "a group read again what a committed transaction had consumed"
    OFFSETS_ESCAPED = "a group passed over what no committed transaction had consumed"
    STUCK = "the last stable offset stays behind though no transaction is open"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    where: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.where}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A send and its transaction."""

    send: Send
    transaction: Transaction


def check(history: History) -> list[Anomaly]:
    """Every anomaly that the history shows, sorted by `Kind`."""
    index = _Index(history)
    found = [anomaly for look in _LOOKS for anomaly in look(index)]
    order = list(Kind)
    return sorted(found, key=lambda anomaly: order.index(anomaly.kind))


@dataclass(slots=True)
class _Index:
    """A history with what is looked up in it often."""

    history: History
    sent: dict[int, Sent] = field(init=False)
    offset_of: dict[int, int] = field(init=False)
    """Value -> its offset in the log; the first one of a value that is there twice."""
    visible: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sent = {}
        for transaction in self.history.transactions:
            for send in transaction.sends:
                assert send.value not in self.sent, f"{send.value} was sent twice: the history is no good"
                self.sent[send.value] = Sent(send, transaction)
        self.offset_of = {}
        for records in self.history.log.values():
            for offset, value in records:
                self.offset_of.setdefault(value, offset)
        self.visible = set(self.offset_of)


def _describe(sent: Sent) -> str:
    topic, number = sent.send.partition
    return f"{sent.send.value} in {topic}-{number} of {sent.transaction}"


# -- what is in the log


def _lost_writes(index: _Index) -> Iterator[Anomaly]:
    for value, sent in index.sent.items():
        if sent.transaction.outcome is Outcome.COMMITTED and value not in index.visible:
            yield Anomaly(Kind.LOST_WRITE, _describe(sent))


def _torn(index: _Index) -> Iterator[Anomaly]:
    """Of a commit that was not answered all is there, or nothing."""
    for transaction in index.history.transactions:
        if transaction.outcome is not Outcome.UNKNOWN:
            continue
        there = {send.value: send.value in index.visible for send in transaction.sends}
        if len(set(there.values())) > 1:
            missing = [value for value, is_there in there.items() if not is_there]
            yield Anomaly(Kind.TORN, f"{transaction} lacks {missing} of {sorted(there)}")


def _duplicates(index: _Index) -> Iterator[Anomaly]:
    for name, logs in (("log", index.history.log), ("whole log", index.history.everything)):
        places: dict[int, list[str]] = defaultdict(list)
        for (topic, number), records in logs.items():
            for offset, value in records:
                places[value].append(f"{topic}-{number}@{offset}")
        for value, where in places.items():
            if len(where) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value} in the {name} at {', '.join(where)}")


def _unsent(index: _Index) -> Iterator[Anomaly]:
    for where, partition, records in _all_that_was_read(index.history):
        for offset, value in records:
            sent = index.sent.get(value)
            if sent is None or sent.send.partition != partition:
                yield Anomaly(Kind.UNSENT, f"{value} at {partition[0]}-{partition[1]}@{offset} by {where}")


def _all_that_was_read(history: History) -> Iterator[tuple[str, Partition, Records]]:
    for read in history.reads:
        yield read.session, read.partition, read.records
    for name, logs in (("the last reader", history.log), ("the last uncommitted reader", history.everything)):
        for partition, records in logs.items():
            yield name, partition, records


def _inconsistent(index: _Index) -> Iterator[Anomaly]:
    values: dict[tuple[Partition, int], int] = {}
    for sent in index.sent.values():
        if sent.send.offset is not None:
            values[sent.send.partition, sent.send.offset] = sent.send.value
    for where, partition, records in _all_that_was_read(index.history):
        for offset, value in records:
            other = values.setdefault((partition, offset), value)
            if other != value:
                text = (
                    f"{partition[0]}-{partition[1]}@{offset} is {value} for {where} and {other} for another"
                )
                yield Anomaly(Kind.INCONSISTENT, text)
    for value, offset in index.offset_of.items():
        acknowledged = index.sent[value].send.offset if value in index.sent else None
        if acknowledged not in (None, offset):
            text = f"{_describe(index.sent[value])} was acknowledged at {acknowledged} and is at {offset}"
            yield Anomaly(Kind.INCONSISTENT, text)


def _stuck(index: _Index) -> Iterator[Anomaly]:
    for (topic, number), ends in index.history.ends.items():
        if ends.last_stable_offset < ends.high_watermark:
            text = f"{topic}-{number}: {ends.last_stable_offset} of {ends.high_watermark}"
            yield Anomaly(Kind.STUCK, text)


# -- what readers saw


def _aborted_reads(index: _Index) -> Iterator[Anomaly]:
    told = set()
    reads = [(read.session, read.records) for read in index.history.reads if read.is_committed]
    reads += [("the last reader", records) for records in index.history.log.values()]
    for where, records in reads:
        for _, value in records:
            sent = index.sent.get(value)
            if sent and sent.transaction.outcome is Outcome.ABORTED and value not in told:
                told.add(value)
                yield Anomaly(Kind.ABORTED_READ, f"{_describe(sent)} by {where}")


def _intermediate_reads(index: _Index) -> Iterator[Anomaly]:
    for read in index.history.reads:
        if not read.is_committed:
            continue
        for _, value in read.records:
            sent = index.sent.get(value)
            if sent is None or sent.transaction.commit_asked is None:
                continue  # what was never to be committed is an aborted read
            if read.tick < sent.transaction.commit_asked:
                text = f"{_describe(sent)}, to be committed at {sent.transaction.commit_asked}"
                yield Anomaly(Kind.INTERMEDIATE_READ, f"{text}, by {read.session} at {read.tick}")


def _skipped(index: _Index) -> Iterator[Anomaly]:
    """Each session reads a piece of the log without a hole, in the order of the log."""
    sessions: dict[tuple[str, Partition, bool], list[Read]] = defaultdict(list)
    for read in index.history.reads:
        sessions[read.session, read.partition, read.is_committed].append(read)
    for (session, partition, is_committed), reads in sessions.items():
        seen = [record for read in sorted(reads, key=lambda read: read.tick) for record in read.records]
        whole = index.history.log if is_committed else index.history.everything
        log = list(whole.get(partition, ()))
        if not seen:
            continue
        expected = [record for record in log if seen[0][0] <= record[0] <= seen[-1][0]]
        if seen != expected:
            yield Anomaly(
                Kind.SKIPPED, f"{session} in {partition[0]}-{partition[1]}: {_first(seen, expected)}"
            )


def _first(seen: Records, expected: Records) -> str:
    at = next(
        (n for n, (one, other) in enumerate(zip(seen, expected, strict=False)) if one != other),
        min(len(seen), len(expected)),
    )
    return f"after {list(seen[max(0, at - 2) : at])} read {list(seen[at : at + 3])}, the log has " + str(
        list(expected[at : at + 3])
    )


# -- orders


def _writes(index: _Index) -> Iterator[tuple[Partition, list[Sent]]]:
    """The sends that are in the log, partition by partition in its order."""
    for partition, records in index.history.log.items():
        yield partition, [index.sent[value] for _, value in sorted(records) if value in index.sent]


def _order(index: _Index) -> Iterator[Anomaly]:
    """A transaction's values keep their order, and what began after another had ended comes after it."""
    place = {
        send.value: (transaction.began, at)
        for transaction in index.history.transactions
        for at, send in enumerate(transaction.sends)
    }
    for partition, writes in _writes(index):
        name = f"{partition[0]}-{partition[1]}"
        last_of: dict[int, Sent] = {}
        latest: Sent | None = None
        for sent in writes:
            before = last_of.get(id(sent.transaction))
            if before is not None and place[before.send.value] > place[sent.send.value]:
                text = f"{name}: {before.send.value} is before {sent.send.value} of {sent.transaction}"
                yield Anomaly(Kind.ORDER, text)
            last_of[id(sent.transaction)] = sent
            # `latest` began last of all so far: whoever had ended by then must not come after it.
            if latest is not None and sent.transaction.ended < latest.transaction.began:
                yield Anomaly(Kind.ORDER, f"{name}: {_describe(latest)} is before {_describe(sent)}")
            if latest is None or sent.transaction.began > latest.transaction.began:
                latest = sent


def _overlap(one: Transaction, other: Transaction) -> bool:
    return one.began <= other.ended and other.began <= one.ended


def _write_cycles(index: _Index) -> Iterator[Anomaly]:
    """Cycles of "wrote before in some partition" over transactions of which no two neighbours overlapped."""
    orders = [[sent.transaction for sent in writes] for _, writes in _writes(index)]
    # Where the log agrees with the clock there is no cycle, and pairs are many.
    if all(map(_agrees_with_clock, orders)):
        return
    transactions: dict[int, Transaction] = {}
    after: dict[int, set[int]] = defaultdict(set)
    for order in orders:
        for one, other in itertools.combinations(order, 2):
            if one is not other and not _overlap(one, other):
                transactions[id(one)], transactions[id(other)] = one, other
                after[id(one)].add(id(other))
    for cycle in _cycles(after):
        yield Anomaly(Kind.WRITE_CYCLE, " before ".join(str(transactions[one]) for one in (*cycle, cycle[0])))


def _agrees_with_clock(order: Iterable[Transaction]) -> bool:
    latest_begin = -math.inf
    for transaction in order:
        if transaction.ended < latest_begin:
            return False
        latest_begin = max(latest_begin, transaction.began)
    return True


def _cycles(after: Mapping[int, set[int]]) -> Iterator[list[int]]:
    """One cycle for each strongly connected part that has one (Tarjan, without recursion)."""
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(after):
        if root in numbers:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(after.get(root, ())))]
        numbers[root] = lowest[root] = len(numbers)
        stack.append(root)
        on_stack.add(root)
        while work:
            one, rest = work[-1]
            for other in rest:
                if other not in numbers:
                    numbers[other] = lowest[other] = len(numbers)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if other in on_stack:
                    lowest[one] = min(lowest[one], numbers[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[one])
                if lowest[one] == numbers[one]:
                    part = stack[stack.index(one) :]
                    del stack[len(stack) - len(part) :]
                    on_stack.difference_update(part)
                    if len(part) > 1:
                        yield _shortest_cycle(part[0], set(part), after)


def _shortest_cycle(start: int, part: set[int], after: Mapping[int, set[int]]) -> list[int]:
    came_from: dict[int, int] = {}
    edge = [start]
    while edge:
        following = []
        for one in edge:
            for other in after.get(one, set()) & part:
                if other == start:
                    path = [one]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                if other not in came_from:
                    came_from[other] = one
                    following.append(other)
        edge = following
    raise AssertionError("a strongly connected part has a cycle through each of its members")


# -- offsets


def _offsets(index: _Index) -> Iterator[Anomaly]:
    """What the committed transactions of a group consumed of a partition follows on, from 0 to what the group
    has committed at the end; where an answer is missing, what comes next tells what became of it.
    """
    chains: dict[tuple[str, Partition], list[tuple[Transaction, Consumed]]] = defaultdict(list)
    for transaction in sorted(index.history.transactions, key=lambda one: one.began):
        for consumed in transaction.consumed:
            chains[consumed.group, consumed.partition].append((transaction, consumed))
    for (group, partition), chain in chains.items():
        name = f"{group} in {partition[0]}-{partition[1]}"
        yield from _chain(name, chain, index, index.history.committed.get((group, partition)))


def _chain(
    name: str, chain: Iterable[tuple[Transaction, Consumed]], index: _Index, at_last: int | None
) -> Iterator[Anomaly]:
    position = 0
    doubtful: tuple[Transaction, Consumed] | None = None
    for transaction, consumed in chain:
        position, anomalies = _resolve(name, position, doubtful, consumed.start, str(transaction), index)
        yield from anomalies
        doubtful = None
        if transaction.outcome is Outcome.COMMITTED:
            position = consumed.end
        elif transaction.outcome is Outcome.UNKNOWN:
            doubtful = (transaction, consumed)
    if at_last is not None:
        yield from _resolve(name, position, doubtful, at_last, "the end", index)[1]


def _resolve(
    name: str,
    position: int,
    doubtful: tuple[Transaction, Consumed] | None,
    start: int,
    who: str,
    index: _Index,
) -> tuple[int, list[Anomaly]]:
    """Where the group stands when it goes on at `start`, and what is wrong with that."""
    found = []
    if doubtful is not None:
        transaction, consumed = doubtful
        visible = [send.value in index.visible for send in transaction.sends]
        if start == consumed.end:
            position = start
            if not all(visible):
                found.append(
                    Anomaly(Kind.TORN, f"{name}: {transaction} has its offset in force, not its values")
                )
        elif start == position and any(visible):
            found.append(
                Anomaly(Kind.TORN, f"{name}: {transaction} has its values in the log, not its offset")
            )
    if start != position:
        kind = Kind.OFFSETS_LOST if start < position else Kind.OFFSETS_ESCAPED
        found.append(Anomaly(kind, f"{name}: {who} is at {start}, not at {position}"))
    return start, found


_LOOKS = (
    _lost_writes,
    _aborted_reads,
    _intermediate_reads,
    _torn,
    _write_cycles,
    _order,
    _duplicates,
    _inconsistent,
    _unsent,
    _skipped,
    _offsets,
    _stuck,
)


def summary(history: History) -> str:
    """One line: how much there was to judge."""
    outcomes = Counter(transaction.outcome for transaction in history.transactions)
    told = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome)
    sends = sum(len(transaction.sends) for transaction in history.transactions)
    read = sum(len(read.records) for read in history.reads)
    return f"{len(history.transactions)} transactions ({told}), {sends} values sent, {read} read"
