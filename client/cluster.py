"""The blocking client: metadata, leaders, coordinators, and retries.

    with Cluster(ClientSettings("127.0.0.1:9092")) as cluster:
        numbers = cluster.partitions_of(["orders"])
        ends = cluster.list_offsets({("orders", 0): LATEST})
        response = cluster.ask(coordinator_of("group", "g"), request)

It is for one thread: one connection to a node, opened at its first use. A request with a
retriable error is sent again until `patience_ms` have passed, after a look-up of the leader or coordinator
if that has moved. Other error codes are in the response, for the caller. A failure is a `ClientError` with
one sentence.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from odradek.client.client_error import ClientError, Disconnected, NoBroker, Unreachable, error_codes, refusal
from odradek.client.connection import Connection, Unresolved
from odradek.client.patience import Patience
from odradek.client.secured import Secured
from odradek.client.settings import ClientSettings
from odradek.wire.errors import ErrorCode, error_message, error_of, is_retriable
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import ZERO_UUID, Message

LATEST: Final = -1
"""For `list_offsets`: the offset after the last record that the reader may see."""
EARLIEST: Final = -2
"""For `list_offsets`: the first offset in the log."""
NEWEST: Final = -3
"""For `list_offsets`: the record with the latest timestamp; of Kafka 3.0 and later."""
ANY_NODE: Final = -1
"""For `ask`: any broker."""

NAMES_SHOWN = 3
METADATA_VERSION_MIN = 4
"""Older versions create the topics that they name."""

_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # A leader whose followers do not fetch: they may follow another one, of which it has not heard.
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes after which the leader or coordinator is looked up again."""


class UnknownTopic(ClientError):
    """The cluster has no such topic or partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A target of `ask`: the present leader of a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"the leader of topic {self.topic}, partition {self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """A target of `ask`: the present coordinator of a group or a transactional id."""

    kind: str
    key: str

    def __str__(self) -> str:
        return f"the coordinator of {self.kind} {self.key}"


Target = int | Leader | Coordinator
TopicPartition = tuple[str, int]

_KEY_TYPES = {"group": 0, "transaction": 1}


def leader_of(topic: str, partition: int) -> Leader:
    return Leader(topic=topic, partition=partition)


def coordinator_of(kind: str, key: str) -> Coordinator:
    """`kind` is "group" or "transaction"."""
    assert kind in _KEY_TYPES
    return Coordinator(kind=kind, key=key)


class Cluster:
    """A Kafka cluster as one client sees it; connects with its first request."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._secured = Secured(settings.security)
        self._bootstrap = settings.addresses()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._coordinators: dict[Coordinator, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._newest_epochs: dict[TopicPartition, tuple[bytes, int]] = {}
        """Topic id and leader epoch, where topics have ids."""
        self._informant: tuple[str, int] | None = None
        """The broker that was asked last of those that may all be asked."""
        self._doubted: set[tuple[str, int]] = set()
        """Informants that led to nothing: others are asked first. A broker that is cut off from the
        controllers names old leaders for ever."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection; later requests open new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # What there is

    def partitions_of(self, topics: Collection[str]) -> dict[str, int]:
        """The present number of partitions of each topic; unknown topics are left out."""
        return {
            topic.name: len(topic.partitions) for topic in self._described(topics, Patience(self.settings))
        }

    def read_metadata(self, request: MetadataRequest) -> Any:
        """The metadata as a broker has it."""
        return self._metadata(request, Patience(self.settings))

    def topics(self, pattern: str | None = None) -> list[str]:
        """Sorted names of all topics except internal ones; with a pattern, of those whose whole name
        matches."""
        try:
            matches = re.compile(pattern if pattern is not None else ".*").fullmatch
        except re.error as error:
            raise ClientError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
        found = self._described(None, Patience(self.settings))
        return sorted(topic.name for topic in found if not topic.is_internal and matches(topic.name))

    def topic_id(self, topic: str) -> bytes:
        """The id in the last metadata of the topic; ZERO_UUID if the brokers have no topic ids."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of the known leader, -1 for none."""
        return self._leaders.get((topic, partition), (-1, -1))[1]

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Offset of each partition for a timestamp in milliseconds, EARLIEST, LATEST or NEWEST.

        -1 where no record has that timestamp or a later one. With `read_committed` LATEST is the last
        stable offset. `UnknownTopic` for a partition that is not there.
        """
        left = dict(wanted)
        version_min = 7 if NEWEST in wanted.values() else 0
        found: dict[TopicPartition, int] = {}
        patience = Patience(self.settings)
        while left:
            failure: ClientError | None = None
            for node, partitions in self._by_leader(left, patience).items():
                request = _list_offsets_request({key: left[key] for key in partitions}, read_committed)
                try:
                    response = self._ask_node(node, request, version_min)
                except Disconnected as error:
                    failure = error
                    for key in partitions:
                        self.failed(leader_of(*key), error)
                    continue
                failure = self._take_offsets(response, found, read_committed) or failure
            left = {key: timestamp for key, timestamp in wanted.items() if key not in found}
            if left:
                patience.pause(
                    f"listing the offsets of {_names(f'{topic}-{partition}' for topic, partition in left)}",
                    failure or ClientError("the broker left them out"),
                )
        return {key: found[key] for key in wanted}

    # Asking

    def ask(self, target: Target, request: Message, *, version_max: int | None = None) -> Any:
        """The response of a node (by id, or ANY_NODE), of a `leader_of` or of a `coordinator_of`.

        The version is the highest that both sides have (and `version_max` allows). The request is sent again
        while the connection fails or the response has a retriable code; ClientError when `patience_ms` have
        passed. Other codes are in the response.
        """
        patience = Patience(self.settings)
        while True:
            try:
                connection = self.connect(target, patience)
                response = connection.ask(request, connection.version_of(type(request), version_max))
                code = next(filter(is_retriable, error_codes(response)), None)
                if code is None:
                    return response
                failure = refusal(_doing(request), code)
            except Disconnected as error:
                failure = error
            self.failed(target, failure)
            patience.pause(_asking(request, target), failure)

    def connect(self, target: Target, patience: Patience | None = None) -> Connection:
        """The open connection to the present `target`, for several requests in flight.

        `Disconnected` if it cannot be opened; call `failed` before a retry.
        """
        patience = patience or Patience(self.settings)
        if isinstance(target, Leader):
            return self._connection_to(self._leader(target, patience))
        if isinstance(target, Coordinator):
            return self._connection_to(self._coordinator(target, patience))
        if target != ANY_NODE:
            if target not in self._addresses:
                self._described([], patience)
            return self._connection_to(target)
        return self._any_connection()

    def version_of(self, target: Target, request_class: type[Message]) -> int:
        """The highest version of the present `target` and of this client; retried as `ask` is."""
        patience = Patience(self.settings)
        while True:
            try:
                return self.connect(target, patience).version_of(request_class)
            except Disconnected as error:
                self.failed(target, error)
                patience.pause(f"asking {target} for its versions", error)

    def failed(self, target: Target, failure: ClientError) -> None:
        """Forgets the node of `target`, if after `failure` another node may have its role."""
        if failure.code is None or failure.code in _MOVED or target == ANY_NODE:
            self._doubt_informant()
            if isinstance(target, Leader):
                self._leaders.pop((target.topic, target.partition), None)
            elif isinstance(target, Coordinator):
                self._coordinators.pop(target, None)
            else:
                self._addresses.pop(target, None)

    # Connections

    def _connection_to(self, node: int) -> Connection:
        address = self._addresses.get(node)
        if address is None:
            raise Disconnected(f"the cluster has no broker {node} at the moment")
        return self._connected(address)

    def _connected(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = Connection(
                *address,
                client_id=self.settings.client_id,
                timeout_ms=self.settings.request_timeout_ms,
                response_bytes_max=self.settings.response_bytes_max,
                secured=self._secured,
                patience_ms=self.settings.patience_ms,
                tell=self.settings.tell,
                check=self.settings.check,
                room=self.settings.room,
            )
        return connection

    def _any_connection(self) -> Connection:
        """Open ones first, but those to brokers in doubt last."""
        failures: list[Disconnected] = []
        for address in sorted(self._known_addresses(), key=self._doubted.__contains__):
            try:
                connection = self._connected(address)
            except Disconnected as error:
                failures.append(error)
            else:
                self._informant = address
                return connection
        told = "; ".join(dict.fromkeys(map(str, failures[:NAMES_SHOWN])))
        if not self._addresses and all(isinstance(one, Unresolved) and one.is_final for one in failures):
            # As Java's clients: no bootstrap server has ever been there, so it is a slip, not a failure.
            raise Unreachable(f"{told}; look for a slip in {self.settings.bootstrap_option}")
        raise NoBroker(told)

    def _known_addresses(self) -> list[tuple[str, int]]:
        opened = [address for address, connection in self._connections.items() if connection.is_open]
        return [*dict.fromkeys([*opened, *self._addresses.values(), *self._bootstrap])]

    def _doubt_informant(self) -> None:
        if self._informant is not None:
            self._doubted.add(self._informant)
            if self._doubted.issuperset(self._known_addresses()):
                self._doubted.clear()

    def _ask_node(self, node: int, request: Message, version_min: int = 0) -> Any:
        connection = self._connection_to(node) if node != ANY_NODE else self._any_connection()
        return connection.ask(request, connection.version_of(type(request), version_min=version_min))

    # Metadata

    def _described(self, topics: Collection[str] | None, patience: Patience) -> list[Any]:
        """The known topics among `topics`, or all; remembers leaders and ids."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequestTopic(name=name) for name in sorted(set(topics))],
            allow_auto_topic_creation=False,
        )
        response = self._metadata(request, patience)
        self._addresses.update({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        known = []
        for topic in response.topics:
            if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                known.append(topic)
                self._remember(topic)
            elif topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise refusal(f"reading the metadata of topic {topic.name}", topic.error_code)
        return known

    def _metadata(self, request: MetadataRequest, patience: Patience) -> Any:
        while True:
            try:
                return self._ask_node(ANY_NODE, request, METADATA_VERSION_MIN)
            except Disconnected as error:
                patience.pause(f"asking for metadata at {self.settings.bootstrap_option}", error)

    def _remember(self, topic: Any) -> None:
        self._topic_ids[topic.name] = topic.topic_id
        for one in topic.partitions:
            key = topic.name, one.partition_index
            if topic.topic_id != ZERO_UUID:
                newest_id, newest_epoch = self._newest_epochs.get(key, (topic.topic_id, -1))
                if newest_id == topic.topic_id and one.leader_epoch < newest_epoch:
                    self._doubt_informant()  # it has not heard of the last election
                    continue
                self._newest_epochs[key] = topic.topic_id, one.leader_epoch
            if one.leader_id >= 0:
                self._leaders[key] = one.leader_id, one.leader_epoch
            else:
                self._leaders.pop(key, None)

    def _leader(self, target: Leader, patience: Patience) -> int:
        key = target.topic, target.partition
        doing = f"finding {target}"
        while key not in self._leaders:
            known = {topic.name: len(topic.partitions) for topic in self._described([target.topic], patience)}
            if key in self._leaders:
                break
            there = target.partition < known.get(target.topic, 0)
            if not there and patience.waited_ms() >= self.settings.unknown_topic_ms:
                raise _unknown(target, known.get(target.topic))
            code = ErrorCode.LEADER_NOT_AVAILABLE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._doubt_informant()
            patience.pause(doing, ClientError(error_message(code).rstrip("."), code))
        return self._leaders[key][0]

    def _by_leader(
        self, partitions: Iterable[TopicPartition], patience: Patience
    ) -> dict[int, list[TopicPartition]]:
        unknown = {topic for topic, partition in partitions if (topic, partition) not in self._leaders}
        if unknown:
            self._described(unknown, patience)
        nodes: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            node = self._leader(leader_of(topic, partition), patience)
            nodes.setdefault(node, []).append((topic, partition))
        return nodes

    def _coordinator(self, target: Coordinator, patience: Patience) -> int:
        while target not in self._coordinators:
            response = self._found_coordinator(target, patience)
            code = error_of(response.error_code)
            if code == ErrorCode.NONE:
                self._addresses[response.node_id] = response.host, response.port
                self._coordinators[target] = response.node_id
            elif is_retriable(code):
                self._doubt_informant()
                patience.pause(f"finding {target}", refusal("FindCoordinator", code))
            else:
                raise refusal(f"finding {target}", code, response.error_message)
        return self._coordinators[target]

    def _found_coordinator(self, target: Coordinator, patience: Patience) -> Any:
        key_type = _KEY_TYPES[target.kind]
        while True:
            try:
                connection = self._any_connection()
                version = connection.version_of(FindCoordinatorRequest)
                if version < 4:
                    return connection.ask(FindCoordinatorRequest(key=target.key, key_type=key_type), version)
                request = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=[target.key])
                return connection.ask(request, version).coordinators[0]
            except Disconnected as error:
                patience.pause(f"finding {target}", error)

    # Offsets

    def _take_offsets(
        self, response: Any, found: dict[TopicPartition, int], read_committed: bool
    ) -> ClientError | None:
        """Puts offsets into `found`; returns the last retriable refusal."""
        failure = None
        for topic in response.topics:
            for one in topic.partitions:
                code = error_of(one.error_code)
                if code == ErrorCode.NONE:
                    found[topic.name, one.partition_index] = one.offset
                    continue
                failure = refusal(f"listing the offsets of {topic.name}-{one.partition_index}", code)
                if not is_retriable(code):
                    raise failure
                self.failed(leader_of(topic.name, one.partition_index), failure)
        return failure


def _list_offsets_request(wanted: Mapping[TopicPartition, int], read_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(one)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _unknown(target: Leader, number: int | None) -> UnknownTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if number is None:
        return UnknownTopic(
            f"the cluster has no topic {target.topic}: create it, or look for a slip in its name", code
        )
    return UnknownTopic(
        f"topic {target.topic} has no partition {target.partition}: it has {number}, counted from 0", code
    )


def _doing(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


def _asking(request: Message, target: Target) -> str:
    whom = (
        target if not isinstance(target, int) else f"broker {target}" if target != ANY_NODE else "any broker"
    )
    return f"{_doing(request)} at {whom}"


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    rest = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + rest
