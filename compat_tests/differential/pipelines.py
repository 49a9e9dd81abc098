"""Requests that are sent one behind the other on one connection, of every API, each with an effect that the
next one may show.

`REQUESTS` has one or more of each API that a broker serves; `requests(api_keys)` adds an empty one of each
that has none here, so that a new API is walked without a change of this file.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

from compat_tests.differential.harness import Pair, Pauses, Side
from compat_tests.differential.topics import NOW_MS, id_of, new_topic
from odradek.wire.compression import Compression
from odradek.wire.messages import api_name, find
from odradek.wire.records import build_batch
from odradek.wire.schema import Array, Message, Struct, fields_of

TOPIC, CONFIG_SET = 2, 0
ANY = 1
"""A filter of ACLs that everything passes."""
LONG_MS = 600_000
SLOW_BYTES = 300_000
"""A packed batch of so many bytes is unpacked in a worker thread."""


def built(kind: type[Struct], values: dict[str, Any]) -> Any:
    """A message or struct of plain dicts and lists."""
    types = {spec.name: spec.type for spec in fields_of(kind)}
    return kind(**{name: _built(types[name], value) for name, value in values.items()})


def _built(kind: Any, value: Any) -> Any:
    if isinstance(kind, Array):
        return None if value is None else [_built(kind.item, one) for one in value]
    if isinstance(value, dict):
        return built(kind, value)
    return value


class World:
    """What the requests of one test name: the same on both sides, which are asked in step.

    `quiet` is the topic that a waiting fetch waits for. The partitions 0 of `topics` end at `ends`.
    """

    def __init__(self, pair: Pair) -> None:
        self.plain = new_topic(pair, "plain")
        self.flushed = new_topic(pair, "flushed", flush_messages="1")
        self.slow = new_topic(pair, "slow", compression_type="uncompressed")
        self.quiet = new_topic(pair, "quiet")
        self.topics = (self.plain, self.flushed, self.slow, self.quiet)
        self.ends = dict.fromkeys(self.topics, 0)
        self.partitions = 1
        self.number = 0
        self.group, self.classic = f"simple of {self.plain}", f"classic of {self.plain}"
        self.consumers, self.streams = f"consumers of {self.plain}", f"streams of {self.plain}"
        self.producer = f"producer of {self.plain}"

    @property
    def fresh(self) -> str:
        """A topic that only the two requests of this round make."""
        return f"{self.plain}-{self.number}"


Fields = Callable[[Side, World], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Request:
    name: str
    api_key: int
    fields: Fields
    prepare: tuple[Callable[[Side, World], None], ...] = ()
    """Brings both sides to the state that the request is about."""
    is_answered: bool = True

    def message(self, side: Side, world: World) -> Message:
        message = built(find(self.api_key)[0], self.fields(side, world))
        assert isinstance(message, Message)
        return message


# -- states


def produced(side: Side, world: World) -> None:
    """There is a record in the topic that is committed to, and deleted from."""
    if not world.ends[world.plain]:
        side.ask(Request("", 0, _produce("plain", -1)).message(side, world), 9)


def is_member(side: Side, world: World) -> None:
    """The classic group has one member, static and stable, remembered as `member` with its `generation`."""
    joined = side.ask(Request("", 11, _join).message(side, world), 9)
    assert joined.error_code == 0, joined
    side.values.update(member=joined.member_id, generation=joined.generation_id)
    synced = side.ask(Request("", 14, _sync).message(side, world), 5)
    assert synced.error_code == 0, synced


def is_consumer(side: Side, world: World) -> None:
    """The group of the new protocol has one member, in the epoch remembered as `epoch`."""
    request = Request("", 68, _consumer(lambda side: 0, joins=True)).message(side, world)
    side.values["epoch"] = side.ask(request, 1).member_epoch


def is_producer(side: Side, world: World) -> None:
    """The transactional id has a new epoch, remembered with its producer's id."""
    request = Request("", 22, _init).message(side, world)
    pause = Pauses()
    while (answer := side.ask(request, 5)).error_code:
        assert answer.error_code in (14, 15, 16, 51), answer  # loading, or the one before ends
        pause()
    side.values.update(producer=answer.producer_id, epoch_of_producer=answer.producer_epoch)


def has_begun(side: Side, world: World) -> None:
    """The producer's transaction has a partition."""
    is_producer(side, world)
    request = Request("", 24, _add_partitions).message(side, world)
    pause = Pauses()
    while (
        code := side.ask(request, 3)
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code
    ):
        assert code == 51, code  # the transaction before ends
        pause()


# -- fields of requests


def _records(world: World, size: int = 10) -> bytes:
    value = random.Random(world.number).randbytes(size // 4) * 4
    compression = Compression.GZIP if size >= SLOW_BYTES else Compression.NONE
    return bytes(build_batch([(0, NOW_MS + world.number, b"key", value, [])], compression=compression))


def _produce(topic: str, acks: int, size: int = 10, damage: int = 0) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        name = getattr(world, topic)
        records = bytearray(_records(world, size))
        records[-1] ^= damage
        data = [{"index": 0, "records": bytes(records)}]
        topics = [{"name": name, "topic_id": id_of(side, name), "partition_data": data}]
        return {"acks": acks, "timeout_ms": 10_000, "topic_data": topics}

    return fields


def fetch_of(*names: str, wait_ms: int = 0) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        topics = [
            {
                "topic": topic,
                "topic_id": id_of(side, topic),
                "partitions": [
                    {"partition": 0, "fetch_offset": world.ends[topic], "partition_max_bytes": 1 << 20}
                ],
            }
            for name in names
            for topic in [getattr(world, name)]
        ]
        return {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}

    return fields


def _offsets(timestamp: int) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        asked = [{"partition_index": 0, "timestamp": timestamp}]
        return {"replica_id": -1, "topics": [{"name": name, "partitions": asked} for name in world.topics]}

    return fields


def _join(side: Side, world: World) -> dict[str, Any]:
    return {
        "group_id": world.classic,
        "group_instance_id": "instance",
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
    }


def _known(side: Side) -> dict[str, Any]:
    return {"generation_id": side["generation"], "member_id": side["member"], "group_instance_id": "instance"}


def _sync(side: Side, world: World) -> dict[str, Any]:
    return {
        "group_id": world.classic,
        **_known(side),
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": side["member"], "assignment": b"assigned"}],
    }


def _consumer(epoch: Callable[[Side], int], joins: bool = False) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        more = {"rebalance_timeout_ms": LONG_MS, "subscribed_topic_names": [world.flushed]} if joins else {}
        more = {**more, "topic_partitions": []} if joins else more
        return {"group_id": world.consumers, "member_id": "member", "member_epoch": epoch(side), **more}

    return fields


def _init(side: Side, world: World) -> dict[str, Any]:
    return {"transactional_id": world.producer, "transaction_timeout_ms": LONG_MS}


def _identity(side: Side) -> dict[str, Any]:
    return {"producer_id": side["producer"], "producer_epoch": side["epoch_of_producer"]}


def _add_partitions(side: Side, world: World) -> dict[str, Any]:
    topics = [{"name": world.plain, "partitions": [0]}]
    named = {"transactional_id": world.producer, **_identity(side), "topics": topics}
    return {f"v3_and_below_{name}": value for name, value in named.items()}


def _end(committed: bool) -> Fields:
    return lambda side, world: {
        "transactional_id": world.producer, **_identity(side), "committed": committed,
    }  # fmt: skip


def _in_topic(name: str, partitions: str, value: Any) -> Fields:
    """Requests that say something of partition 0 of a topic, in Kafka's various words."""
    return lambda side, world: {"topics": [{name: world.plain, partitions: value}]}


def _commit(offset: Callable[[World], int], **more: Any) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        one = {"partition_index": 0, "committed_offset": offset(world), "committed_metadata": "note"}
        topic = {"name": world.plain, "topic_id": id_of(side, world.plain), "partitions": [one]}
        return {"group_id": world.group, "topics": [topic], **more}

    return fields


def _commit_in_transaction(side: Side, world: World) -> dict[str, Any]:
    fields = _commit(lambda world: 1000 + world.number)(side, world)
    del fields["topics"][0]["topic_id"]
    return {**fields, "transactional_id": world.producer, **_identity(side)}


def _alter(value: int, **more: Any) -> Fields:
    def fields(side: Side, world: World) -> dict[str, Any]:
        config = {"name": "segment.ms", "value": str(value + world.number), **more}
        return {"resources": [{"resource_type": TOPIC, "resource_name": world.plain, "configs": [config]}]}

    return fields


def _markers(side: Side, world: World) -> dict[str, Any]:
    marker = {
        "producer_id": 12_345,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": world.plain, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


def _named(field: str, name: str) -> Fields:
    return lambda side, world: {field: [getattr(world, name)]}


REQUESTS = [
    Request("acks all", 0, _produce("plain", -1)),
    Request("acks 1", 0, _produce("plain", 1)),
    Request("acks 0", 0, _produce("plain", 0), is_answered=False),
    Request("flushed", 0, _produce("flushed", -1)),
    Request("flushed, acks 0", 0, _produce("flushed", 0), is_answered=False),
    Request("slow", 0, _produce("slow", -1, SLOW_BYTES)),
    Request("slow, acks 0", 0, _produce("slow", 0, SLOW_BYTES), is_answered=False),
    Request("awaited", 0, _produce("quiet", -1)),
    Request("damaged", 0, _produce("plain", -1, damage=1)),
    Request("all", 1, fetch_of("plain", "flushed", "slow")),
    Request("awaited", 1, fetch_of("quiet")),
    Request("latest", 2, _offsets(-1)),
    Request("earliest", 2, _offsets(-2)),
    Request("of the largest timestamp", 2, _offsets(-3)),
    Request(
        "named",
        3,
        lambda side, world: {
            "topics": [{"name": name} for name in (world.plain, world.fresh)],
            "allow_auto_topic_creation": False,
        },
    ),
    Request("an offset", 8, _commit(lambda world: world.number)),
    Request("another offset", 8, _commit(lambda world: 500_000 + world.number)),
    Request("of no generation", 8, _commit(lambda world: 7, generation_id_or_member_epoch=9, member_id="x")),
    Request(
        "of a group",
        9,
        lambda side, world: {"groups": [{"group_id": world.group, "topics": None}], "require_stable": False},
    ),
    Request("of a group", 10, lambda side, world: {"coordinator_keys": [world.group]}),
    Request("static", 11, _join, (is_member,)),
    Request("static", 12, lambda side, world: {"group_id": world.classic, **_known(side)}, (is_member,)),
    Request(
        "static",
        13,
        lambda side, world: {
            "group_id": world.classic,
            "members": [{"member_id": "", "group_instance_id": "instance"}],
        },
        (is_member,),
    ),
    Request("static", 14, _sync, (is_member,)),
    Request("all groups", 15, lambda side, world: {"groups": [world.classic, world.group, world.consumers]}),
    Request("all", 16, lambda side, world: {}),
    Request(
        "known", 18, lambda side, world: {"client_software_name": "known", "client_software_version": "1"}
    ),
    Request(
        "fresh",
        19,
        lambda side, world: {
            "topics": [{"name": world.fresh, "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 30_000,
        },
    ),
    Request("fresh", 20, lambda side, world: {"topics": [{"name": world.fresh}], "timeout_ms": 30_000}),
    Request(
        "to the end",
        21,
        lambda side, world: {
            "topics": [{"name": world.plain, "partitions": [{"partition_index": 0, "offset": -1}]}],
            "timeout_ms": 30_000,
        },
    ),
    Request("transactional", 22, _init, (is_producer,)),
    Request("idempotent", 22, lambda side, world: {"transactional_id": None}),
    Request(
        "epoch 0",
        23,
        lambda side, world: {
            "replica_id": -1,
            "topics": [{"topic": world.plain, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        },
    ),
    Request("a partition", 24, _add_partitions, (is_producer,)),
    Request(
        "a group",
        25,
        lambda side, world: {
            "transactional_id": world.producer,
            **_identity(side),
            "group_id": world.group,
        },
        (is_producer,),
    ),
    Request("commit", 26, _end(True), (has_begun,)),
    Request("abort", 26, _end(False), (has_begun,)),
    Request("of nobody", 27, _markers),
    Request("an offset", 28, _commit_in_transaction, (is_producer,)),
    Request(
        "of anything",
        29,
        lambda side, world: {
            "resource_type_filter": ANY,
            "pattern_type_filter": ANY,
            "operation": ANY,
            "permission_type": ANY,
        },
    ),
    Request(
        "of a topic",
        32,
        lambda side, world: {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": world.plain,
                    "configuration_keys": ["segment.ms"],
                }
            ]
        },
    ),
    Request("of a topic", 33, _alter(LONG_MS)),
    Request("of a topic", 44, _alter(2 * LONG_MS, config_operation=CONFIG_SET)),
    Request(
        "nowhere",
        34,
        lambda side, world: {
            "dirs": [{"path": "/nowhere", "topics": [{"name": world.plain, "partitions": [0]}]}]
        },
    ),
    Request("of a topic", 35, _in_topic("topic", "partitions", [0])),
    Request(
        "of a topic",
        37,
        lambda side, world: {
            "topics": [{"name": world.plain, "count": world.partitions + 1, "assignments": None}],
            "timeout_ms": 30_000,
        },
    ),
    Request("simple", 42, lambda side, world: {"groups_names": [world.group]}),
    Request(
        "of a topic",
        43,
        lambda side, world: {"topic_partitions": [{"topic": world.plain, "partitions": [0]}]},
    ),
    Request("any", 46, lambda side, world: {"topics": None}),
    Request(
        "of a topic",
        47,
        lambda side, world: {
            "group_id": world.group,
            "topics": [{"name": world.plain, "partitions": [{"partition_index": 0}]}],
        },
    ),
    Request("of a topic", 61, _in_topic("name", "partition_indexes", [0])),
    Request("of the producer", 65, _named("transactional_ids", "producer")),
    Request("joins", 68, _consumer(lambda side: 0, joins=True)),
    Request("stays", 68, _consumer(lambda side: side["epoch"]), (is_consumer,)),
    Request("leaves", 68, _consumer(lambda side: -1), (is_consumer,)),
    Request("of a group", 69, _named("group_ids", "consumers")),
    Request("of a topic", 75, lambda side, world: {"topics": [{"name": world.plain}, {"name": world.fresh}]}),
    Request("of a group", 89, _named("group_ids", "streams")),
]


def requests(api_keys: Iterable[int]) -> list[Request]:
    """Those of these APIs."""
    keys = set(api_keys)
    known = {one.api_key for one in REQUESTS}
    empty = [Request("empty", key, lambda side, world: {}) for key in sorted(keys - known)]
    return [one for one in REQUESTS + empty if one.api_key in keys]


def label(request: Request) -> str:
    return f"{api_name(request.api_key)} {request.name}"
