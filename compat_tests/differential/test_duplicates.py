"""What is named twice: every array of every request that both serve, with an element of it doubled.

The second is the same, or says something else of the same thing; see `doubles.py`. Answers are compared, and
what can be seen of the brokers afterwards. An API that is served needs a row here for each of its arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest

from compat_tests.differential import share_state, sharing
from compat_tests.differential.doubles import Case, Row, Values, arrays_of, compare_doubles, message, path_of
from compat_tests.differential.harness import Pair, Side, served_versions
from compat_tests.differential.test_records import batch, produce
from compat_tests.differential.test_transactions import wait_for_coordinators
from compat_tests.differential.topics import NOW_MS, id_of, new_topic
from compat_tests.kit.group_wire import LONG_MS, assignment, subscription
from odradek.wire.messages import api_name, find

TOPIC, GROUP_KIND, TRANSACTION_KIND = 2, 0, 1
NO_ID = bytes(16)
NOBODYS_ID = bytes([9]) * 16
DESCRIBED = ["retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy"]

UNTIL_SILENT_SECONDS = 3.0
"""For an answer of Kafka, where it has requests that it never answers."""

_numbers = itertools.count()


def fresh(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


def cluster(side: Side, answer: Any) -> None:
    if answer.cluster_id:
        side.remember("cluster id", answer.cluster_id)


def ask(
    pair: Pair,
    api_key: int,
    values: Values | Callable[[Side], Values],
    version: int,
    note: str = "",
    **how: Any,
) -> tuple[Any, Any]:
    def build(side: Side) -> Any:
        return message(api_key, values(side) if callable(values) else values, version)

    return pair.ask(build, version, note, any_order=True, **how)


# What can be seen afterwards


def ends(*topics: str, timestamps: tuple[int, ...] = (-2, -1)) -> Callable[[Pair], None]:
    def look(pair: Pair) -> None:
        for timestamp in timestamps:
            asked = [{"partition_index": n, "timestamp": timestamp} for n in range(3)]
            values = {"replica_id": -1, "topics": [{"name": name, "partitions": asked} for name in topics]}
            ask(pair, 2, values, 5, f"offsets {timestamp}")

    return look


def records(*topics: str) -> Callable[[Pair], None]:
    def look(pair: Pair) -> None:
        for name in topics:
            for index in range(3):
                one = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                values = {
                    "max_wait_ms": 0,
                    "max_bytes": 1 << 20,
                    "session_epoch": -1,
                    "topics": [{"topic": name, "partitions": [one]}],
                }
                ask(pair, 1, values, 12, f"records of {index}")

    return look


def shape(*topics: str) -> Callable[[Pair], None]:
    """Partitions, and some settings. Kafka's broker hears of changes a little after its controller has
    answered, so it has until it says what we say."""

    def look(pair: Pair) -> None:
        for name in topics:
            values = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            ours = outline(pair.odradek.ask(message(3, values, 9), 9))
            ask(pair, 3, values, 9, "metadata", see=cluster, settle=lambda one: outline(one) == ours)  # noqa: B023
            resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": DESCRIBED}
            ask(pair, 32, {"resources": [resource]}, 1, "settings")

    return look


def outline(answer: Any) -> Any:
    return [
        (topic.error_code, sorted((one.partition_index, one.leader_id) for one in topic.partitions))
        for topic in answer.topics
    ]


def committed(group: str, *topics: str) -> Callable[[Pair], None]:
    def look(pair: Pair) -> None:
        asked = [{"name": name, "partition_indexes": [0, 1, 2]} for name in topics]
        ask(pair, 9, {"group_id": group, "topics": asked}, 7, "committed")

    return look


def members_of(group: str) -> Callable[[Pair], None]:
    return lambda pair: ask(pair, 15, {"groups": [group]}, 5, "members") and None


# Of records


def two_topics(pair: Pair, prefix: str) -> tuple[str, str]:
    """With three empty partitions each."""
    return new_topic(pair, prefix, 3), new_topic(pair, prefix, 3)


def two_full_topics(pair: Pair, prefix: str) -> tuple[str, str]:
    topics = two_topics(pair, prefix)
    for name in topics:
        for index in range(3):
            fill(pair, name, index)
    return topics


@cache
def known_topics(pair: Pair) -> tuple[str, str]:
    """The same each time, for requests that change nothing."""
    return two_full_topics(pair, "known")


def fill(pair: Pair, topic: str, index: int, count: int = 3) -> None:
    for number in range(count):
        data = {"index": index, "records": batch(2, start=10 * number)}
        values = {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [data]}],
        }
        ask(pair, 0, values, 9, f"filling {topic}")


def both(side: Side, name: str, **more: Any) -> Values:
    """A topic by its name, and by its id where the version has that."""
    return {"name": name, "topic_id": id_of(side, name), **more}


def producing(pair: Pair, version: int, acks: int = -1) -> Case:
    t, u = two_topics(pair, "twice")

    def data(index: int, number: int) -> Values:
        return {"index": index, "records": in_format(number, version)}

    def after() -> None:
        ends(t, u)(pair)
        records(t, u)(pair)

    return Case(
        lambda side: {
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [
                both(side, t, partition_data=[data(0, 1), data(1, 2)]),
                both(side, u, partition_data=[data(0, 3)]),
            ],
        },
        after,
    )


def in_format(number: int, version: int) -> bytes:
    from compat_tests.differential.test_records import for_version

    return for_version(batch(2, start=10 * number), version)


def other_records(side: Side, element: Values) -> Values:
    """Of the same format as those that are there."""
    magic = element["records"][16]
    return {"records": in_format(7, 3 if magic == 2 else 2 if magic == 1 else 0)}


def other_partition(side: Side, element: Values) -> Values:
    """The topic once more, with what was for its first partition for the last one."""
    (name,) = (name for name in ("partition_data", "partitions") if name in element)
    first = element[name][0]
    (number,) = (one for one in ("index", "partition", "partition_index") if one in first)
    return {name: [{**first, number: 2}]}


def overlapping(side: Side, element: Values) -> Values:
    """The topic once more, with its last partition and another one."""
    (name,) = (name for name in ("partition_data", "partitions") if name in element)
    first, *_ = element[name]
    (number,) = (one for one in ("index", "partition", "partition_index") if one in first)
    return {name: [{**first, number: 1}, {**first, number: 2}]}


def fetching(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)

    def one(index: int) -> Values:
        return {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}

    return Case(
        lambda side: {
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [
                {"topic": t, "topic_id": id_of(side, t), "partitions": [one(0), one(1)]},
                {"topic": u, "topic_id": id_of(side, u), "partitions": [one(0)]},
            ],
        }
    )


def fetching_in_a_session(pair: Pair, version: int) -> Case:
    """The second request of a session: what it asks for, what it forgets, and who is in there afterwards."""
    t, u = two_topics(pair, "session")

    def topic(side: Side, name: str, *indexes: int) -> Values:
        asked = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in indexes]
        return {"topic": name, "topic_id": id_of(side, name), "partitions": asked}

    def remember(side: Side, answer: Any) -> None:
        side.remember("session", answer.session_id, "session_id")

    base = {"max_wait_ms": 0, "max_bytes": 1 << 20}
    ask(
        pair,
        1,
        lambda side: {**base, "session_epoch": 0, "topics": [topic(side, t, 0, 1, 2), topic(side, u, 0, 1)]},
        version,
        "opened",
        see=remember,
    )
    for name in (t, u):
        for index in range(3):
            fill(pair, name, index, 1)

    def in_session(side: Side, epoch: int) -> Values:
        return {**base, "session_id": side["session"], "session_epoch": epoch}

    def gone(side: Side, name: str, *indexes: int) -> Values:
        return {"topic": name, "topic_id": id_of(side, name), "partitions": list(indexes)}

    def after() -> None:
        for name in (t, u):
            for index in range(3):
                fill(pair, name, index, 1)
        ask(pair, 1, lambda side: {**in_session(side, 2), "topics": []}, version, "what is in the session")

    return Case(
        lambda side: {
            **in_session(side, 1),
            "topics": [topic(side, u, 2, 1), topic(side, t, 2)],
            "forgotten_topics_data": [gone(side, t, 0, 1), gone(side, u, 0)],
        },
        after,
    )


def listing_offsets(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)

    def one(index: int, timestamp: int) -> Values:
        # How many: of version 0.
        return {"partition_index": index, "timestamp": timestamp, "max_num_offsets": 3}

    return Case(
        lambda side: {
            "replica_id": -1,
            "topics": [
                {"name": t, "partitions": [one(0, -1), one(1, -2)]},
                {"name": u, "partitions": [one(0, NOW_MS)]},
            ],
        }
    )


def asking_for_epochs(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)

    def one(index: int) -> Values:
        return {"partition": index, "leader_epoch": 0}

    return Case(
        lambda side: {
            "replica_id": -1,
            "topics": [
                {"topic": t, "partitions": [one(0), one(1)]},
                {"topic": u, "partitions": [one(0)]},
            ],
        }
    )


def deleting_records(pair: Pair, version: int) -> Case:
    t, u = two_full_topics(pair, "cut")
    return Case(
        lambda side: {
            "timeout_ms": 10_000,
            "topics": [
                {
                    "name": t,
                    "partitions": [{"partition_index": 0, "offset": 1}, {"partition_index": 1, "offset": 2}],
                },
                {"name": u, "partitions": [{"partition_index": 0, "offset": 3}]},
            ],
        },
        lambda: ends(t, u)(pair),
    )


def describing_producers(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    return Case(
        lambda side: {
            "topics": [{"name": t, "partition_indexes": [0, 1]}, {"name": u, "partition_indexes": [0]}]
        }
    )


# Of topics


def metadata_by_name(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    topics = [{"name": name} for name in (t, "not-there", u)]
    return Case(
        lambda side: {"topics": topics, "allow_auto_topic_creation": version < 4},
        see=cluster,
    )


def metadata_of_nobody(pair: Pair, version: int) -> Case:
    topics = [{"name": "not-there"}, {"name": "bad/name"}]
    return Case(lambda side: {"topics": topics, "allow_auto_topic_creation": version < 4}, see=cluster)


def metadata_by_id(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    return Case(
        lambda side: {
            "topics": [
                {"name": None, "topic_id": id_of(side, t)},
                {"name": None, "topic_id": NOBODYS_ID},
                {"name": None, "topic_id": id_of(side, u)},
            ],
            "allow_auto_topic_creation": False,
        },
        see=cluster,
    )


def creating_topics(pair: Pair, version: int) -> Case:
    counted, assigned = fresh("made"), fresh("made")

    def see(side: Side, answer: Any) -> None:
        for topic in answer.topics:
            if any(topic.topic_id):
                side.remember(f"id of {topic.name}", topic.topic_id)

    return Case(
        lambda side: {
            "timeout_ms": 30_000,
            "topics": [
                {
                    "name": counted,
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "configs": [
                        {"name": "retention.ms", "value": "1000"},
                        {"name": "segment.bytes", "value": "2000000"},
                    ],
                },
                {
                    "name": assigned,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [
                        {"partition_index": 0, "broker_ids": [1]},
                        {"partition_index": 1, "broker_ids": [1]},
                    ],
                },
            ],
        },
        lambda: shape(counted, assigned)(pair),
        see,
    )


def deleting_topics(pair: Pair, version: int) -> Case:
    t, u = two_topics(pair, "going")
    return Case(
        lambda side: {
            "timeout_ms": 30_000,
            "topics": [{"name": t}, {"name": "not-there"}, {"name": u}],
            "topic_names": [t, "not-there", u],
        },
        lambda: shape(t, u)(pair),
    )


def deleting_topics_by_id(pair: Pair, version: int) -> Case:
    t, u = two_topics(pair, "going")
    return Case(
        lambda side: {
            "timeout_ms": 30_000,
            "topics": [
                {"name": None, "topic_id": id_of(side, t)},
                {"name": None, "topic_id": NOBODYS_ID},
                {"name": None, "topic_id": id_of(side, u)},
            ],
        },
        lambda: shape(t, u)(pair),
    )


def growing_topics(pair: Pair, version: int) -> Case:
    t, u = two_topics(pair, "grow")
    return Case(
        lambda side: {
            "timeout_ms": 30_000,
            "topics": [
                {"name": t, "count": 5, "assignments": [{"broker_ids": [1]}, {"broker_ids": [1]}]},
                {"name": u, "count": 4, "assignments": None},
            ],
        },
        lambda: shape(t, u)(pair),
    )


def describing_topics(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    return Case(lambda side: {"topics": [{"name": t}, {"name": "not-there"}, {"name": u}]})


def moving_replicas(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    return Case(
        lambda side: {
            "timeout_ms": 10_000,
            "topics": [
                {
                    "name": t,
                    "partitions": [
                        {"partition_index": 0, "replicas": [1]},
                        {"partition_index": 1, "replicas": [1]},
                    ],
                },
                {"name": u, "partitions": [{"partition_index": 0, "replicas": [1]}]},
            ],
        },
        lambda: shape(t, u)(pair),
    )


def listing_moves(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    topics = [{"name": t, "partition_indexes": [0, 1]}, {"name": u, "partition_indexes": [0]}]
    return Case(lambda side: {"timeout_ms": 10_000, "topics": topics})


def electing_leaders(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    topics = [{"topic": t, "partitions": [0, 1]}, {"topic": u, "partitions": [0]}]
    return Case(lambda side: {"topic_partitions": topics, "timeout_ms": 10_000})


def describing_log_dirs(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    return Case(
        lambda side: {"topics": [{"topic": t, "partitions": [0, 1]}, {"topic": u, "partitions": [0]}]}
    )


def moving_between_log_dirs(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    for side in pair.sides:
        (directory,) = side.ask(message(35, {"topics": []}, 1), 1).results
        side.values["directory"] = directory.log_dir

    return Case(
        lambda side: {
            "dirs": [
                {
                    "path": side["directory"],
                    "topics": [{"name": t, "partitions": [0, 1]}, {"name": u, "partitions": [0]}],
                },
                {"path": "/not/there", "topics": [{"name": u, "partitions": [1]}]},
            ]
        }
    )


# Of settings


def describing_settings(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    keys = ["retention.ms", "no.such", "segment.bytes"]
    return Case(
        lambda side: {
            "resources": [
                {"resource_type": TOPIC, "resource_name": t, "configuration_keys": keys},
                {"resource_type": TOPIC, "resource_name": u, "configuration_keys": keys[:1]},
            ]
        }
    )


def altering_settings(pair: Pair, version: int) -> Case:
    t, u = two_topics(pair, "altered")
    values = [{"name": "retention.ms", "value": "1000"}, {"name": "segment.bytes", "value": "2000000"}]
    return Case(
        lambda side: {
            "resources": [
                {"resource_type": TOPIC, "resource_name": t, "configs": values},
                {"resource_type": TOPIC, "resource_name": u, "configs": values[:1]},
            ]
        },
        lambda: shape(t, u)(pair),
    )


def altering_lists(pair: Pair, version: int) -> Case:
    """Operations that add to one setting and take from it."""
    t = new_topic(pair, "altered")
    add, remove = 2, 3
    values = [
        {"name": "cleanup.policy", "config_operation": add, "value": "compact"},
        {"name": "cleanup.policy", "config_operation": remove, "value": "delete"},
    ]
    return Case(
        lambda side: {"resources": [{"resource_type": TOPIC, "resource_name": t, "configs": values}]},
        lambda: shape(t)(pair),
    )


def updating_features(pair: Pair, version: int) -> Case:
    """Levels that they have already: nothing changes."""
    wanted = [
        {"feature": "transaction.version", "max_version_level": 2},
        {"feature": "group.version", "max_version_level": 1},
    ]
    return Case(lambda side: {"feature_updates": wanted, "validate_only": version >= 1})


def describing_quorum(pair: Pair, version: int) -> Case:
    topics = [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
        {"topic_name": "not-there", "partitions": [{"partition_index": 0}]},
    ]

    def see(side: Side, answer: Any) -> None:
        for topic in answer.topics:
            for one in topic.partitions:
                side.remember("controller epoch", one.leader_epoch, "leader_epoch")
                side.remember("end", one.high_watermark, "high_watermark")
                for replica in one.current_voters:
                    side.remember("voter end", replica.log_end_offset, "log_end_offset")
                    side.remember("directory", replica.replica_directory_id)
                    side.remember("time", replica.last_fetch_timestamp, "last_fetch_timestamp")
                    side.remember("caught up", replica.last_caught_up_timestamp, "last_caught_up_timestamp")
        for node in getattr(answer, "nodes", []):
            for listener in node.listeners:
                side.remember("controller port", listener.port, "port")

    return Case(lambda side: {"topics": topics}, see=see)


# Of groups


def group_with_offsets(pair: Pair, topic: str) -> str:
    group = fresh("twice")
    asked = [{"partition_index": n, "committed_offset": n + 1, "committed_metadata": ""} for n in range(3)]
    values = {"group_id": group, "topics": [{"name": topic, "partitions": asked}]}
    ask(pair, 8, values, 7, "committing")
    return group


def committing(pair: Pair, version: int, missing: int = 0) -> Case:
    """`missing` may name a partition that does not exist: what does not is answered first."""
    t, u = known_topics(pair)
    group = fresh("twice")

    def one(index: int, offset: int) -> Values:
        return {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}

    return Case(
        lambda side: {
            "group_id": group,
            "topics": [
                both(side, t, partitions=[one(0, 5), one(1, 6)]),
                both(side, u, partitions=[one(missing, 7)]),
            ],
        },
        lambda: committed(group, t, u)(pair),
    )


def fetching_offsets(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    group, other = group_with_offsets(pair, t), group_with_offsets(pair, u)
    topics = [{"name": t, "partition_indexes": [0, 1]}, {"name": u, "partition_indexes": [0]}]
    return Case(
        lambda side: {
            "group_id": group,
            "topics": topics,
            "groups": [
                {
                    "group_id": name,
                    "topics": [
                        both(side, t, partition_indexes=[0, 1]),
                        both(side, u, partition_indexes=[0]),
                    ],
                }
                for name in (group, other)
            ],
        }
    )


def deleting_offsets(pair: Pair, version: int, missing: int = 0) -> Case:
    t, u = known_topics(pair)
    group = group_with_offsets(pair, t)
    return Case(
        lambda side: {
            "group_id": group,
            "topics": [
                {"name": t, "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
                {"name": u, "partitions": [{"partition_index": missing}]},
            ],
        },
        lambda: committed(group, t, u)(pair),
    )


def finding_coordinators(pair: Pair, version: int, kind: int = GROUP_KIND) -> Case:
    return Case(lambda side: {"key_type": kind, "coordinator_keys": ["one", "two"]})


def joining(pair: Pair, version: int) -> Case:
    group = fresh("twice")

    def see(side: Side, answer: Any) -> None:
        if answer.member_id:
            side.remember("member", answer.member_id)

    return Case(
        lambda side: {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 600_000,
            "member_id": "",
            # A static one joins at once in versions that give an id first.
            "group_instance_id": "i",
            "protocol_type": "consumer",
            "protocols": [
                {"name": "range", "metadata": subscription("t")},
                {"name": "sticky", "metadata": subscription("u")},
            ],
        },
        lambda: members_of(group)(pair),
        see,
    )


def joined(pair: Pair) -> str:
    """A group of one static member; its id is remembered as `member i`, the generation as `generation`."""
    group = fresh("twice")
    values = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": LONG_MS,
        "member_id": "",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
    }

    def see(side: Side, answer: Any) -> None:
        side.remember("member i", answer.member_id)
        side.values["generation"] = answer.generation_id

    ask(pair, 11, values, 5, "joining", see=see)
    return group


def syncing(pair: Pair, version: int) -> Case:
    group = joined(pair)
    return Case(
        lambda side: {
            "group_id": group,
            "generation_id": side["generation"],
            "member_id": side["member i"],
            "group_instance_id": "i" if version >= 3 else None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": side["member i"], "assignment": assignment({"t": [0]})},
                {"member_id": "nobody", "assignment": assignment({"t": [1]})},
            ],
        },
        lambda: members_of(group)(pair),
    )


def leaving(pair: Pair, version: int) -> Case:
    group = joined(pair)
    return Case(
        lambda side: {
            "group_id": group,
            "members": [
                {"member_id": "", "group_instance_id": "i", "reason": "one"},
                {"member_id": "nobody", "group_instance_id": None},
            ],
        },
        lambda: members_of(group)(pair),
    )


def leaving_by_id(pair: Pair, version: int) -> Case:
    group = joined(pair)
    return Case(
        lambda side: {
            "group_id": group,
            "members": [{"member_id": side["member i"], "group_instance_id": None}],
        },
        lambda: members_of(group)(pair),
    )


def describing_groups(pair: Pair, version: int) -> Case:
    topic, _ = known_topics(pair)
    names = [group_with_offsets(pair, topic), "not-there"]
    return Case(lambda side: {"groups": names})


def listing_groups(pair: Pair, version: int) -> Case:
    """By what no group is: which groups there are depends on the tests before."""
    return Case(lambda side: {"states_filter": ["Dead", "None"], "types_filter": ["share", "streams"]})


def deleting_groups(pair: Pair, version: int) -> Case:
    topic, _ = known_topics(pair)
    one, other = group_with_offsets(pair, topic), group_with_offsets(pair, topic)

    def after() -> None:
        committed(one, topic)(pair)
        committed(other, topic)(pair)

    return Case(lambda side: {"groups_names": [one, other, "not-there"]}, after)


def share_joining(pair: Pair, version: int) -> Case:
    group = fresh("twice")
    return Case(
        lambda side: {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_names": ["not-there", "nor-this"],
        },
        lambda: ask(pair, 77, {"group_ids": [group]}, 1, "described") and None,
    )


def share_reading(pair: Pair) -> tuple[str, str, str]:
    """A group, and two topics of which its member has two records of each of two partitions."""
    topic, other = new_topic(pair, "twice", 2), new_topic(pair, "twice", 2)
    group = sharing.readers(pair, topic, 2)
    sharing.join(pair, group, "m", topic, other, partitions=4)
    for side in pair.sides:
        side.hang_up()
    for epoch, (name, index) in enumerate(itertools.product((topic, other), (0, 1))):
        data = batch(2)
        pair.ask(lambda side: produce(side, name, data, partition=index), 9, "filled")  # noqa: B023
        pair.ask(
            lambda side: sharing.fetch_request(side, group, "m", epoch, [(name, index)]),  # noqa: B023
            2,
            "read",
        )
    return group, topic, other


def share_offsets_of(pair: Pair, group: str) -> Callable[[], None]:
    return lambda: sharing.describe_offsets(pair, (group, None), note="afterwards", any_order=True)


def _acknowledged(side: Side, *topics: str) -> list[Values]:
    return [
        {
            "topic_id": id_of(side, name),
            "partitions": [
                {
                    "partition_index": index,
                    "acknowledgement_batches": [
                        {"first_offset": at, "last_offset": at, "acknowledge_types": [1]} for at in (0, 1)
                    ],
                }
                for index in (0, 1)
            ],
        }
        for name in topics
    ]


def share_fetching(pair: Pair, version: int) -> Case:
    group, topic, other = share_reading(pair)
    return Case(
        lambda side: {
            "group_id": group,
            "member_id": "m",
            "share_session_epoch": 4,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_records": 500,
            "batch_size": 500,
            "topics": _acknowledged(side, topic, other),
            "forgotten_topics_data": [
                {"topic_id": id_of(side, name), "partitions": [0, 1]} for name in (topic, other)
            ],
        },
        share_offsets_of(pair, group),
    )


def share_acknowledging(pair: Pair, version: int) -> Case:
    group, topic, other = share_reading(pair)
    return Case(
        lambda side: {
            "group_id": group,
            "member_id": "m",
            "share_session_epoch": 4,
            "topics": _acknowledged(side, topic, other),
        },
        share_offsets_of(pair, group),
    )


def share_offsets(pair: Pair, version: int) -> Case:
    group, topic, other = share_reading(pair)
    asked = [{"topic_name": name, "partitions": [0, 1]} for name in (topic, other)]
    return Case(lambda side: {"groups": [{"group_id": one, "topics": asked} for one in (group, "nobody")]})


def share_altering(pair: Pair, version: int) -> Case:
    group, topic, other = share_reading(pair)
    sharing.beat(pair, sharing.heartbeat(group, "m", -1), "leaves")
    starts = [{"partition_index": index, "start_offset": 1} for index in (0, 1)]
    return Case(
        lambda side: {
            "group_id": group,
            "topics": [{"topic_name": name, "partitions": starts} for name in (topic, other)],
        },
        share_offsets_of(pair, group),
    )


def share_deleting(pair: Pair, version: int) -> Case:
    group, topic, other = share_reading(pair)
    sharing.beat(pair, sharing.heartbeat(group, "m", -1), "leaves")
    return Case(
        lambda side: {"group_id": group, "topics": [{"topic_name": name} for name in (topic, other)]},
        share_offsets_of(pair, group),
    )


def share_states(fields: Values, since_1: Values | None = None) -> Callable[[Pair, int], Case]:
    """Of two topics with two partitions, which have states."""

    def prepare(pair: Pair, version: int) -> Case:
        topics, group = [new_topic(pair, "twice", 2), new_topic(pair, "twice", 2)], fresh("twice")
        for side in pair.sides:
            share_state.wait_for_coordinator(side, topics[0])
            for name in topics:
                side.ask(share_state.initialize(side, name, group, 0, 1, start=0), 0)
        of_partition = {**fields, **(since_1 or {} if version >= 1 else {})}

        def asked(side: Side) -> Values:
            partitions = [{"partition": index, **of_partition} for index in (0, 1)]
            named = [{"topic_id": id_of(side, name), "partitions": partitions} for name in topics]
            return {"group_id": group, "topics": named}

        def after() -> None:
            for name in topics:
                pair.ask(
                    lambda side: share_state.read(side, name, group, 0, 1),  # noqa: B023
                    0,
                    "afterwards",
                    any_order=True,
                )

        return Case(asked, after)

    return prepare


def consumer_joining(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    group = fresh("twice")
    return Case(
        lambda side: {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 600_000,
            "subscribed_topic_names": [t, u],
            "topic_partitions": [],
        },
        lambda: ask(pair, 69, {"group_ids": [group]}, 1, "described") and None,
    )


def consumer_staying(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    group = fresh("twice")
    base = {"group_id": group, "member_id": "m", "rebalance_timeout_ms": 600_000}
    first = {**base, "member_epoch": 0, "subscribed_topic_names": [t, u], "topic_partitions": []}

    def see(side: Side, answer: Any) -> None:
        side.values["epoch"] = answer.member_epoch

    ask(pair, 68, first, 1, "joins", see=see)
    return Case(
        lambda side: {
            **base,
            "member_epoch": side["epoch"],
            "topic_partitions": [
                {"topic_id": id_of(side, t), "partitions": [0, 1]},
                {"topic_id": id_of(side, u), "partitions": [0]},
            ],
        },
        lambda: ask(pair, 69, {"group_ids": [group]}, 1, "described") and None,
    )


def describing_consumer_groups(pair: Pair, version: int) -> Case:
    consumer_staying(pair, version)
    group = f"twice-{next(_numbers) - 1}"
    return Case(lambda side: {"group_ids": [group, "not-there"]})


# Of streams groups


def internal(name: str) -> Values:
    configs = [{"key": "cleanup.policy", "value": "compact"}, {"key": "retention.ms", "value": "7000"}]
    return {"name": name, "partitions": 0, "replication_factor": 0, "topic_configs": configs}


def repartition(name: str) -> Values:
    return {**internal(name), "partitions": 3}


def subtopology(number: str, sources: list[str], **more: Any) -> Values:
    fields: Values = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return {**fields, "subtopology_id": number, "source_topics": sources, **more}


def streams_member(group: str, **more: Any) -> Values:
    fields: Values = {
        "endpoint_information_epoch": -1,
        "rebalance_timeout_ms": 600_000,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "process",
        "client_tags": [{"key": "zone", "value": "a"}, {"key": "rack", "value": "b"}],
    }
    return {**fields, "group_id": group, "member_id": "m", "member_epoch": 0, **more}


def topology(group: str, t: str, u: str) -> Values:
    """Two subtopologies: one makes, of two sources, what the other reads and keeps."""
    again = f"{group}-x-repartition"
    everything = {"source_topic_regex": [], "repartition_source_topics": [0]}
    return {
        "epoch": 1,
        "subtopologies": [
            subtopology(
                "1",
                [t, u],
                repartition_source_topics=[repartition(again)],
                state_changelog_topics=[internal(f"{group}-{one}-changelog") for one in "ab"],
                copartition_groups=[{"source_topics": [0, 1], **everything}],
            ),
            subtopology("0", [t], repartition_sink_topics=[again]),
        ],
    }


def described_streams(pair: Pair, group: str) -> None:
    ask(pair, 89, {"group_ids": [group]}, 0, "described")


def streams_joining(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    group = fresh("streams-group")
    return Case(
        lambda side: streams_member(group, topology=topology(group, t, u)),
        lambda: described_streams(pair, group),
    )


def streams_joining_by_pattern(pair: Pair, version: int) -> Case:
    group = fresh("streams-group")
    groups = [{"source_topics": [], "source_topic_regex": [0, 1], "repartition_source_topics": []}]
    part = subtopology("0", [], source_topic_regex=["a.*", "b.*"], copartition_groups=groups)
    return Case(
        lambda side: streams_member(group, topology={"epoch": 1, "subtopologies": [part]}),
        lambda: described_streams(pair, group),
    )


def streams_staying(pair: Pair, version: int) -> Case:
    t, u = known_topics(pair)
    group = fresh("streams-group")
    parts = [subtopology("0", [t]), subtopology("1", [u])]

    def see(side: Side, answer: Any) -> None:
        side.values["epoch"] = answer.member_epoch

    first = streams_member(group, topology={"epoch": 1, "subtopologies": parts})
    ask(pair, 88, first, 0, "joins", see=see)
    tasks = [{"subtopology_id": "0", "partitions": [0, 1]}, {"subtopology_id": "1", "partitions": [0]}]
    offsets = [{"subtopology_id": "0", "partition": index, "offset": 5} for index in (0, 1)]
    return Case(
        lambda side: {
            **streams_member(group, member_epoch=side["epoch"]),
            "active_tasks": tasks,
            "standby_tasks": tasks,
            "warmup_tasks": tasks,
            "task_offsets": offsets,
            "task_end_offsets": offsets,
        },
        lambda: described_streams(pair, group),
    )


# Of transactions


def transactional(pair: Pair, version: int = 4) -> str:
    """A transactional id, its producer id and epoch remembered as `producer of ID` and `epoch`."""
    name = fresh("transaction")

    def see(side: Side, answer: Any) -> None:
        side.remember(f"producer of {name}", answer.producer_id, "producer_id")
        side.values["epoch"] = answer.producer_epoch

    values = {"transactional_id": name, "transaction_timeout_ms": 600_000}
    ask(pair, 22, values, version, see=see, settle=lambda answer: answer.error_code == 0)
    return name


def adding_partitions(pair: Pair, version: int) -> Case:
    # Of its own: the transactions run out, and their markers have the time of the broker.
    t, u = two_topics(pair, "added")
    name, other = transactional(pair), transactional(pair)
    topics = [{"name": t, "partitions": [0, 1]}, {"name": u, "partitions": [0]}]

    def one(side: Side, transaction: str) -> Values:
        return {
            "transactional_id": transaction,
            "producer_id": side[f"producer of {transaction}"],
            "producer_epoch": side["epoch"],
            "topics": topics,
        }

    def after() -> None:
        ask(
            pair,
            65,
            {"transactional_ids": [name, other]},
            0,
            "described",
            see=lambda side, answer: [
                side.remember("some time", one.transaction_start_time_ms, "transaction_start_time_ms")
                for one in answer.transaction_states
            ],
        )

    def values(side: Side) -> Values:
        if version >= 4:
            return {"transactions": [one(side, name), one(side, other)]}
        return {f"v3_and_below_{key}": value for key, value in one(side, name).items()}

    return Case(values, after)


def committing_in_a_transaction(pair: Pair, version: int, missing: int = 0) -> Case:
    t, u = known_topics(pair)
    name, group = transactional(pair), fresh("twice")

    def who(side: Side) -> Values:
        return {
            "transactional_id": name,
            "producer_id": side[f"producer of {name}"],
            "producer_epoch": side["epoch"],
        }

    def one(index: int, offset: int) -> Values:
        return {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}

    def after() -> None:
        committed(group, t, u)(pair)
        ask(pair, 26, lambda side: {**who(side), "committed": True}, 4)
        asked = [{"name": name, "partition_indexes": [0, 1, 2]} for name in (t, u)]
        ask(
            pair,
            9,
            {"group_id": group, "topics": asked, "require_stable": True},
            7,
            "stable",
            settle=lambda answer: not any(p.error_code for topic in answer.topics for p in topic.partitions),
        )

    ask(pair, 25, lambda side: {**who(side), "group_id": group}, 3)
    return Case(
        lambda side: {
            **who(side),
            "group_id": group,
            "topics": [
                {"name": t, "partitions": [one(0, 5), one(1, 6)]},
                {"name": u, "partitions": [one(missing, 7)]},
            ],
        },
        after,
    )


def writing_markers(pair: Pair, version: int) -> Case:
    """For a producer that has nothing open there: each marker that is written takes an offset."""
    t, u = two_topics(pair, "marked")
    first, second = 1_000_000 + next(_numbers), 1_000_000 + next(_numbers)

    def marker(producer_id: int) -> Values:
        return {
            "producer_id": producer_id,
            "producer_epoch": 1,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [{"name": t, "partition_indexes": [0, 1]}, {"name": u, "partition_indexes": [0]}],
        }

    def times(side: Side, answer: Any) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                for producer in partition.active_producers:
                    side.remember("some time", producer.last_timestamp, "last_timestamp")

    def after() -> None:
        ends(t, u)(pair)
        asked = [{"name": name, "partition_indexes": [0, 1, 2]} for name in (t, u)]
        ask(pair, 61, {"topics": asked}, 0, "producers", see=times)

    return Case(lambda side: {"markers": [marker(first), marker(second)]}, after)


def describing_transactions(pair: Pair, version: int) -> Case:
    name = transactional(pair)
    return Case(lambda side: {"transactional_ids": [name, "not-there"]})


def listing_transactions(pair: Pair, version: int) -> Case:
    name = transactional(pair)
    return Case(
        lambda side: {
            "state_filters": ["Empty", "Nonsense"],
            "producer_id_filters": [side[f"producer of {name}"], 987_654_321],
        }
    )


# Of security, quotas and what else a single node only answers


def fixed(values: Values) -> Callable[[Pair, int], Case]:
    return lambda pair, version: Case(lambda side: values)


def acl(**more: Any) -> Values:
    named = {"resource_type": TOPIC, "resource_name": "t", "principal": "User:a", "host": "*"}
    return {**named, "operation": 3, "permission_type": 3, **more}


def acl_filter(**more: Any) -> Values:
    named = {"resource_type_filter": TOPIC, "resource_name_filter": "t", "principal_filter": None}
    return {**named, "host_filter": None, "operation": 1, "permission_type": 1, **more}


def principal(name: str) -> Values:
    return {"principal_type": "User", "principal_name": name}


def quota(user: str) -> Values:
    """Takes away what nobody has."""
    return {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [
            {"key": "producer_byte_rate", "value": 1000.0, "remove": True},
            {"key": "consumer_byte_rate", "value": 1000.0, "remove": True},
        ],
    }


def upsertion(name: str) -> Values:
    """With too few iterations to be taken."""
    password = b"x" * 32
    return {"name": name, "mechanism": 1, "iterations": 1, "salt": b"salt", "salted_password": password}


NODE = {"name": "n", "node_type": 1, "source_topics": ["t"], "stores": ["s"], "successors": ["m"]}
OF_A_DESCRIPTION = [
    "topology_description.subtopologies",
    "topology_description.subtopologies.nodes",
    *(f"topology_description.subtopologies.nodes.{one}" for one in ("source_topics", "stores", "successors")),
    "topology_description.global_stores",
    *(
        f"topology_description.global_stores.{node}.{one}"
        for node in ("source", "processor")
        for one in ("source_topics", "stores", "successors")
    ),
]
"""The arrays of a description of a topology."""
describing_topology = fixed(
    {
        "group_id": "not-there",
        "member_id": "m",
        "topology_epoch": 0,
        "topology_description": {
            "subtopologies": [{"subtopology_id": "0", "nodes": [NODE]}],
            "global_stores": [{"source": NODE, "processor": NODE}],
        },
    }
)
ROWS = [
    Row(
        0,
        producing,
        {"topic_data": [other_partition, overlapping], "topic_data.partition_data": [other_records]},
    ),
    Row(
        1,
        fetching,
        {
            "topics": [other_partition, overlapping],
            "topics.partitions": [{"fetch_offset": 2}, {"fetch_offset": 99}, {"partition_max_bytes": 1}],
        },
    ),
    Row(
        1,
        fetching_in_a_session,
        {
            "topics": [other_partition],
            "topics.partitions": [{"fetch_offset": 2}],
            "forgotten_topics_data": [{"partitions": [2]}],
            "forgotten_topics_data.partitions": [],
        },
        first_version=7,
    ),
    Row(
        2,
        listing_offsets,
        {
            "topics": [other_partition, overlapping],
            "topics.partitions": [{"timestamp": -2}, {"timestamp": NOW_MS}],
        },
    ),
    Row(3, metadata_by_name, {"topics": []}),
    Row(3, metadata_of_nobody, {"topics": []}),
    Row(3, metadata_by_id, {"topics": [{"name": "x"}]}, first_version=12),
    *(
        Row(
            api_key,
            partial(prepare, missing=missing),
            {
                "topics": [other_partition, overlapping],
                "topics.partitions": [{"committed_offset": 9}, {"committed_metadata": "x" * 5000}],
            },
            # Versions below are compared with Kafka 3.9, whose groups live in another coordinator.
            first_version=2 if api_key == 8 else 0,
        )
        for api_key, prepare in ((8, committing), (28, committing_in_a_transaction))
        for missing in (0, 99)
    ),
    Row(
        9,
        fetching_offsets,
        {
            "topics": [{"partition_indexes": [2]}, {"partition_indexes": [1, 2]}],
            "topics.partition_indexes": [],
            "groups": [lambda side, group: {"topics": group["topics"][1:]}, {"topics": None}],
            "groups.topics": [{"partition_indexes": [2]}, {"partition_indexes": [1, 2]}],
            "groups.topics.partition_indexes": [],
        },
    ),
    Row(10, finding_coordinators, {"coordinator_keys": []}),
    Row(10, partial(finding_coordinators, kind=TRANSACTION_KIND), {"coordinator_keys": []}),
    Row(11, joining, {"protocols": [{"metadata": subscription("v")}]}),
    Row(
        13,
        leaving,
        {"members": [{"reason": "another"}, lambda side, _: {"member_id": side["member i"]}]},
    ),
    Row(
        13,
        leaving_by_id,
        {"members": [{"group_instance_id": "i"}, {"member_id": "", "group_instance_id": "i"}]},
    ),
    Row(14, syncing, {"assignments": [{"assignment": assignment({"t": [7]})}, {"assignment": b""}]}),
    Row(15, describing_groups, {"groups": []}),
    Row(16, listing_groups, {"states_filter": [], "types_filter": []}),
    Row(
        19,
        creating_topics,
        {
            "topics": [{"num_partitions": 3}, {"name": "bad/name"}],
            "topics.assignments": [{"broker_ids": [99]}, {"broker_ids": []}],
            "topics.assignments.broker_ids": [],
            "topics.configs": [{"value": "3000"}, {"value": None}, {"value": "soon"}],
        },
    ),
    Row(
        20,
        deleting_topics,
        {
            "topics": [
                lambda side, topic: {"name": None, "topic_id": id_of(side, topic["name"])},
                lambda side, topic: {"topic_id": id_of(side, topic["name"])},
            ],
            "topic_names": [],
        },
    ),
    Row(20, deleting_topics_by_id, {"topics": [{"name": "x"}]}, first_version=6),
    Row(
        21,
        deleting_records,
        {
            "topics": [other_partition, overlapping],
            "topics.partitions": [{"offset": 4}, {"offset": 0}, {"offset": 99}],
        },
    ),
    Row(
        23,
        asking_for_epochs,
        {
            "topics": [other_partition, overlapping],
            "topics.partitions": [{"leader_epoch": 5}, {"current_leader_epoch": 3}],
        },
    ),
    Row(
        24,
        adding_partitions,
        {
            "transactions": [
                lambda side, one: {"topics": one["topics"][1:]},
                {"producer_epoch": 7},
                {"verify_only": True},
            ],
            "transactions.topics": [{"partitions": [2]}, {"partitions": [1, 2]}],
            "transactions.topics.partitions": [],
            "v3_and_below_topics": [{"partitions": [2]}, {"partitions": [1, 2]}],
            "v3_and_below_topics.partitions": [],
        },
    ),
    Row(
        27,
        writing_markers,
        {
            "markers": [
                {"transaction_result": False},
                {"producer_epoch": 0},
                {"producer_epoch": 2},
                lambda side, one: {"topics": one["topics"][1:]},
            ],
            "markers.topics": [{"partition_indexes": [2]}, {"partition_indexes": [1, 2]}],
            "markers.topics.partition_indexes": [],
        },
        seconds=UNTIL_SILENT_SECONDS,
    ),
    Row(30, fixed({"creations": [acl(), acl(operation=4)]}), {"creations": [{"permission_type": 2}]}),
    Row(31, fixed({"filters": [acl_filter(), acl_filter(operation=4)]}), {"filters": [{"operation": 3}]}),
    Row(
        32,
        describing_settings,
        {
            "resources": [
                {"configuration_keys": ["max.message.bytes"]},
                {"configuration_keys": ["cleanup.policy", "retention.ms"]},
            ],
            "resources.configuration_keys": [],
        },
    ),
    *(
        Row(
            api_key,
            altering_settings,
            {
                "resources": [
                    {"configs": [{"name": "max.message.bytes", "value": "5000"}]},
                    {"configs": [{"name": "retention.ms", "value": "7000"}]},
                ],
                "resources.configs": [{"value": "3000"}, {"value": "soon"}, {"value": None}],
            },
            seconds=UNTIL_SILENT_SECONDS,
        )
        for api_key in (33, 44)
    ),
    Row(44, altering_lists, {"resources.configs": [{"config_operation": 1}, {"config_operation": 3}]}),
    Row(
        34,
        moving_between_log_dirs,
        {
            "dirs": [lambda side, one: {"topics": one["topics"][1:]}],
            "dirs.topics": [{"partitions": [2]}, {"partitions": [1, 2]}],
            "dirs.topics.partitions": [],
        },
    ),
    Row(
        35,
        describing_log_dirs,
        {"topics": [{"partitions": [2]}, {"partitions": [1, 2]}], "topics.partitions": []},
    ),
    Row(
        37,
        growing_topics,
        {
            "topics": [{"count": 4, "assignments": None}],
            "topics.assignments": [{"broker_ids": []}],
            "topics.assignments.broker_ids": [],
        },
    ),
    Row(38, fixed({"renewers": [principal("a"), principal("b")], "max_lifetime_ms": -1}), {"renewers": []}),
    Row(41, fixed({"owners": [principal("a"), principal("b")]}), {"owners": []}),
    Row(42, deleting_groups, {"groups_names": []}),
    Row(
        43,
        electing_leaders,
        {
            "topic_partitions": [{"partitions": [2]}, {"partitions": [1, 2]}],
            "topic_partitions.partitions": [],
        },
    ),
    Row(
        45,
        moving_replicas,
        {
            "topics": [other_partition, overlapping],
            "topics.partitions": [{"replicas": None}, {"replicas": [99]}],
            "topics.partitions.replicas": [],
        },
    ),
    Row(
        46,
        listing_moves,
        {
            "topics": [{"partition_indexes": [2]}, {"partition_indexes": [1, 2]}],
            "topics.partition_indexes": [],
        },
    ),
    *(
        Row(
            47,
            partial(deleting_offsets, missing=missing),
            {"topics": [other_partition, overlapping], "topics.partitions": []},
        )
        for missing in (0, 99)
    ),
    Row(
        48,
        fixed(
            {
                "components": [
                    {"entity_type": "user", "match_type": 0, "match": "a"},
                    {"entity_type": "client-id", "match_type": 1, "match": None},
                ]
            }
        ),
        {"components": [{"match": "b"}, {"match_type": 2, "match": None}]},
    ),
    Row(
        49,
        fixed({"entries": [quota("a"), quota("b")], "validate_only": True}),
        {
            "entries": [lambda side, one: {"ops": one["ops"][1:]}],
            "entries.entity": [{"entity_name": "b"}],
            "entries.ops": [{"value": 2000.0}, {"remove": False}],
        },
    ),
    Row(50, fixed({"users": [{"name": "a"}, {"name": "b"}]}), {"users": []}),
    Row(
        51,
        fixed(
            {
                "deletions": [{"name": "a", "mechanism": 1}, {"name": "b", "mechanism": 1}],
                "upsertions": [upsertion("c"), upsertion("d")],
            }
        ),
        {
            "deletions": [{"mechanism": 2}],
            "upsertions": [{"iterations": 4096}, {"mechanism": 2}, {"name": "a"}],
        },
    ),
    Row(
        55,
        describing_quorum,
        {
            "topics": [{"partitions": [{"partition_index": 1}]}],
            "topics.partitions": [{"partition_index": 1}],
        },
    ),
    Row(
        57,
        updating_features,
        {"feature_updates": [{"max_version_level": 1}, {"max_version_level": 9}]},
    ),
    Row(
        61,
        describing_producers,
        {
            "topics": [{"partition_indexes": [2]}, {"partition_indexes": [1, 2]}],
            "topics.partition_indexes": [],
        },
    ),
    Row(65, describing_transactions, {"transactional_ids": []}),
    Row(66, listing_transactions, {"state_filters": [], "producer_id_filters": []}),
    Row(68, consumer_joining, {"subscribed_topic_names": []}),
    Row(
        68,
        consumer_staying,
        {
            "topic_partitions": [{"partitions": [2]}, {"partitions": [1, 2]}],
            "topic_partitions.partitions": [],
        },
    ),
    Row(69, describing_consumer_groups, {"group_ids": []}),
    Row(74, fixed({"resource_types": [2, 77]}), {"resource_types": []}),
    Row(75, describing_topics, {"topics": []}),
    Row(
        88,
        streams_joining,
        {
            "topology.subtopologies": [{"source_topics": []}],
            "topology.subtopologies.source_topics": [],
            "topology.subtopologies.state_changelog_topics": [{"topic_configs": []}, {"partitions": 2}],
            "topology.subtopologies.state_changelog_topics.topic_configs": [{"value": "delete"}],
            "topology.subtopologies.repartition_sink_topics": [],
            "topology.subtopologies.repartition_source_topics": [{"topic_configs": []}],
            "topology.subtopologies.repartition_source_topics.topic_configs": [{"value": "delete"}],
            "topology.subtopologies.copartition_groups": [{"source_topics": []}],
            "topology.subtopologies.copartition_groups.source_topics": [],
            "topology.subtopologies.copartition_groups.repartition_source_topics": [],
            "client_tags": [{"value": "c"}],
        },
    ),
    Row(
        88,
        streams_joining_by_pattern,
        {
            "topology.subtopologies.source_topic_regex": [],
            "topology.subtopologies.copartition_groups.source_topic_regex": [],
        },
    ),
    Row(
        88,
        streams_staying,
        {
            "active_tasks": [{"partitions": [2]}],
            "active_tasks.partitions": [],
            "standby_tasks": [{"partitions": [2]}],
            "standby_tasks.partitions": [],
            "warmup_tasks": [{"partitions": [2]}],
            "warmup_tasks.partitions": [],
            "task_offsets": [{"offset": 6}],
            "task_end_offsets": [{"offset": 6}],
        },
    ),
    Row(
        80,
        fixed(
            {
                "cluster_id": "another",
                "voter_id": 2,
                "voter_directory_id": NOBODYS_ID,
                "timeout_ms": 1000,
                "listeners": [
                    {"name": "CONTROLLER", "host": "localhost", "port": 1},
                    {"name": "SECOND", "host": "localhost", "port": 2},
                ],
            }
        ),
        {"listeners": [{"port": 3}]},
    ),
    Row(76, share_joining, {"subscribed_topic_names": []}),
    Row(77, fixed({"group_ids": ["not-there", "nor-this"]}), {"group_ids": []}),
    Row(
        78,
        share_fetching,
        {
            "topics": [{"partitions": []}],
            "topics.partitions": [{"acknowledgement_batches": []}],
            "topics.partitions.acknowledgement_batches": [{"acknowledge_types": [2]}],
            "topics.partitions.acknowledgement_batches.acknowledge_types": [],
            "forgotten_topics_data": [{"partitions": [0]}],
            "forgotten_topics_data.partitions": [],
        },
    ),
    Row(
        79,
        share_acknowledging,
        {
            "topics": [{"partitions": []}],
            "topics.partitions": [{"acknowledgement_batches": []}],
            "topics.partitions.acknowledgement_batches": [{"acknowledge_types": [2]}],
            "topics.partitions.acknowledgement_batches.acknowledge_types": [],
        },
    ),
    Row(
        83,
        share_states({"state_epoch": 1, "start_offset": 4}),
        {"topics": [{"partitions": []}], "topics.partitions": [{"start_offset": 5}]},
    ),
    Row(
        84,
        share_states({"leader_epoch": 0}),
        {"topics": [{"partitions": []}], "topics.partitions": [{"leader_epoch": 1}]},
    ),
    Row(
        85,
        share_states(
            {
                "state_epoch": 0,
                "leader_epoch": 0,
                "start_offset": 0,
                "state_batches": [
                    {
                        "first_offset": first,
                        "last_offset": first + 2,
                        "delivery_state": 2,
                        "delivery_count": 1,
                    }
                    for first in (0, 3)
                ],
            },
            {"delivery_complete_count": 1},
        ),
        {
            "topics": [{"partitions": []}],
            # Not another start: here it does not go back.
            "topics.partitions": [{"state_batches": []}],
            "topics.partitions.state_batches": [{"delivery_state": 0}],
        },
    ),
    Row(86, share_states({}), {"topics": [{"partitions": []}], "topics.partitions": []}),
    Row(
        87,
        share_states({"leader_epoch": 0}),
        {"topics": [{"partitions": []}], "topics.partitions": [{"leader_epoch": 1}]},
    ),
    Row(
        90,
        share_offsets,
        {
            "groups": [{"topics": None}],
            "groups.topics": [{"partitions": [1]}],
            "groups.topics.partitions": [],
        },
    ),
    Row(91, share_altering, {"topics": [{"partitions": []}], "topics.partitions": [{"start_offset": 2}]}),
    Row(92, share_deleting, {"topics": []}),
    Row(89, fixed({"group_ids": ["not-there", "nor-this"]}), {"group_ids": []}),
    Row(93, describing_topology, {path: [] for path in OF_A_DESCRIPTION}),
]


@pytest.fixture(autouse=True)
def _coordinators(pair: Pair) -> None:
    wait_for_coordinators(pair)


def test_every_array_of_every_served_request_has_a_row(pair: Pair) -> None:
    missing = [
        f"{api_name(api_key)} ({api_key}): {path}"
        for api_key in served_versions(pair.odradek)
        for path in map(path_of, arrays_of(find(api_key)[0]))
        if not any(path in row.arrays for row in ROWS if row.api_key == api_key)
    ]
    assert not missing, "no row has these arrays:\n" + "\n".join(missing)


def names(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        prepare = row.prepare.func if isinstance(row.prepare, partial) else row.prepare
        yield f"{api_name(row.api_key)}-{getattr(prepare, '__name__', '')}"


@pytest.mark.parametrize("row", ROWS, ids=names(ROWS))
def test_what_is_named_twice_is_answered_alike(pair: Pair, row: Row) -> None:
    compare_doubles(pair, row)
