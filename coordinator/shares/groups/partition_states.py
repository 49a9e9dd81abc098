"""The states of the share partitions of a group: which there are, and their way there and back (KIP-932).

The log says which states are being set up, are there, or are being deleted; a machine asks the share
coordinator only after that is in the log. So nothing is lost when this node stops in between: what was being
set up is asked for again after a while, what was being deleted with the next deletion.

A heartbeat sets up what its group subscribes to and has no state for. An administrator alters the start
offsets of an empty group, which sets states up anew, and has states deleted; a group is deleted after its
states. Source: GroupMetadataManager and GroupCoordinatorService of Kafka 4.3. Three things are different:
where some of several states were refused, the others count; a state is not set up while it is being deleted;
and a heartbeat also forgets topics that were deleted while nobody looked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.group import GroupRecord
from odradek.coordinator.shares.groups.group import (
    PartitionStates,
    ShareGroup,
    TopicStates,
    states_value,
)
from odradek.coordinator.shares.state.persister import (
    UNINITIALIZED_OFFSET,
    InitialState,
    Refusal,
    Results,
    SharePartitionKey,
)
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.messages import alter_share_group_offsets as alter
from odradek.wire.messages import delete_share_group_offsets as delete
from odradek.wire.messages.group_records import ShareGroupStatePartitionMetadataKey
from odradek.wire.schema import ZERO_UUID

NONE = ErrorCode.NONE
NO_SUCH_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DONE = Refusal(NONE)
MISSING = Refusal(NO_SUCH_PARTITION)
TopicsWithStates = Mapping[bytes, TopicStates]


def record_of(group_id: str, states: PartitionStates) -> GroupRecord:
    return ShareGroupStatePartitionMetadataKey(group_id=group_id), states_value(states)


# Setting up


def missing(
    group: ShareGroup, names: Collection[str], view: ClusterView, now_ms: int, retry_ms: int
) -> dict[bytes, TopicStates]:
    """The partitions of subscribed topics that have no state, and for which nobody has asked since
    `retry_ms`. What is being deleted waits for its end, so that it is not set up before."""
    states = group.states
    found: dict[bytes, TopicStates] = {}

    def is_under_way(asked_at_ms: Mapping[bytes, int], topic_id: bytes) -> bool:
        return topic_id in asked_at_ms and now_ms - asked_at_ms[topic_id] < retry_ms

    for name in names:
        topic = view.topics.get(name)
        if topic is None or is_under_way(group.deletion_asked_at_ms, topic.topic_id):
            continue
        known: frozenset[int] = frozenset()
        has_state = states.initialized.get(topic.topic_id)
        if has_state is not None:
            known = has_state.partitions
        asked_for = states.initializing.get(topic.topic_id)
        if asked_for is not None and is_under_way(group.asked_at_ms, topic.topic_id):
            known |= asked_for.partitions
        if len(known) < len(topic.partitions):
            found[topic.topic_id] = TopicStates(name, frozenset(range(len(topic.partitions))) - known)
    return found


def to_initialize(states: PartitionStates, topics: TopicsWithStates) -> PartitionStates:
    """These are asked for. What was being deleted is wanted again."""
    return states._replace(
        initializing=_united(states.initializing, topics),
        deleting={topic_id: name for topic_id, name in states.deleting.items() if topic_id not in topics},
    )


def initialized(states: PartitionStates, results: Results, *, gives_up: bool) -> PartitionStates:
    """The share coordinator has answered. With `gives_up` what it has refused is asked for no more; else it
    stays to be set up."""
    done: dict[bytes, set[int]] = {}
    settled: dict[bytes, set[int]] = {}
    for key, (code, _) in results.items():
        asked_for = states.initializing.get(key.topic_id)
        # Others may have gone on: the topic was deleted, or its state is.
        if asked_for is None or key.partition not in asked_for.partitions:
            continue
        if code is NONE:
            done.setdefault(key.topic_id, set()).add(key.partition)
        if code is NONE or gives_up:
            settled.setdefault(key.topic_id, set()).add(key.partition)
    initializing = {}
    for topic_id, one in states.initializing.items():
        left = one.partitions - settled.get(topic_id, set())
        if left:
            initializing[topic_id] = one._replace(partitions=left)
    new = {
        topic_id: TopicStates(states.initializing[topic_id].name, frozenset(partitions))
        for topic_id, partitions in done.items()
    }
    return states._replace(initializing=initializing, initialized=_united(states.initialized, new))


def initial_states(
    group: ShareGroup, epoch: int, topics: TopicsWithStates, known: Collection[bytes]
) -> list[InitialState]:
    """A partition that a `known` topic has gained begins at its first record, as the group has read the topic
    before; others where `share.auto.offset.reset` says."""
    return [
        InitialState(
            SharePartitionKey(group.group_id, topic_id, index),
            epoch,
            0 if topic_id in known else UNINITIALIZED_OFFSET,
        )
        for topic_id, one in topics.items()
        for index in sorted(one.partitions)
    ]


def altered(
    group: ShareGroup, request: alter.AlterShareGroupOffsetsRequest, view: ClusterView
) -> tuple[alter.AlterShareGroupOffsetsResponse, list[InitialState], dict[bytes, TopicStates]]:
    """The response if the share coordinator refuses nothing; what to ask it for, twice."""
    wanted: dict[str, list[alter.AlterShareGroupOffsetsRequestPartition]] = {}
    for one in request.topics:
        wanted.setdefault(one.topic_name, []).extend(one.partitions)
    results: list[alter.AlterShareGroupOffsetsResponseTopic] = []
    states: list[InitialState] = []
    topics: dict[bytes, TopicStates] = {}
    for name, partitions in wanted.items():
        topic = view.topics.get(name)
        count = 0 if topic is None else len(topic.partitions)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        offsets = {
            one.partition_index: one.start_offset for one in partitions if 0 <= one.partition_index < count
        }
        indexes = [one.partition_index for one in partitions]
        results.append(
            alter.AlterShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic_id,
                partitions=[_alteration(index, DONE if index in offsets else MISSING) for index in indexes],
            )
        )
        if offsets:
            topics[topic_id] = TopicStates(name, frozenset(offsets))
            states += [
                InitialState(SharePartitionKey(group.group_id, topic_id, index), group.group_epoch, offset)
                for index, offset in offsets.items()
            ]
    return alter.AlterShareGroupOffsetsResponse(responses=results), states, topics


def add_results(group_id: str, response: alter.AlterShareGroupOffsetsResponse, results: Results) -> None:
    """Say in the response what the share coordinator has refused, besides what was refused before."""
    for topic in response.responses:
        for one in topic.partitions:
            refusal = results.get(SharePartitionKey(group_id, topic.topic_id, one.partition_index))
            if refusal is not None and one.error_code == NONE:
                one.error_code, one.error_message = refusal.error_code, _message_of(refusal)


# Deleting


def delete_all(group: ShareGroup, view: ClusterView) -> tuple[PartitionStates, list[SharePartitionKey]]:
    """All states of a group are to go, also those that a deletion before has left."""
    states = group.states
    topics = _united(states.initializing, states.initialized)
    left_over = {
        topic_id: _all_of(topic_id, view) for topic_id in states.deleting if topic_id in view.topic_names
    }
    topics = _united(topics, left_over)
    names = {topic_id: one.name for topic_id, one in topics.items()}
    return PartitionStates(deleting=names), _keys(group.group_id, topics)


def delete_topics(
    group: ShareGroup, request: delete.DeleteShareGroupOffsetsRequest, view: ClusterView
) -> tuple[PartitionStates, list[SharePartitionKey], list[delete.DeleteShareGroupOffsetsResponseTopic]]:
    """The states of these topics are to go; the topics of which there are none. No topic is named twice."""
    states = group.states
    kept, deleting = dict(states.initialized), dict(states.deleting)
    topics: dict[bytes, TopicStates] = {}
    refused: list[delete.DeleteShareGroupOffsetsResponseTopic] = []
    for name in [one.topic_name for one in request.topics]:
        topic = view.topics.get(name)
        if topic is None:
            refused.append(_deletion(name, ZERO_UUID, MISSING))
        elif topic.topic_id in kept:
            topics[topic.topic_id] = kept.pop(topic.topic_id)
            deleting[topic.topic_id] = name
        elif topic.topic_id in deleting:
            topics[topic.topic_id] = _all_of(topic.topic_id, view)
        else:
            refusal = Refusal(NO_SUCH_PARTITION, "There is no offset information to delete.")
            refused.append(_deletion(name, ZERO_UUID, refusal))
    return (
        states._replace(initialized=kept, deleting=deleting),
        _keys(group.group_id, topics),
        refused,
    )


def deleted(
    states: PartitionStates, results: Results, view: ClusterView
) -> tuple[PartitionStates, list[delete.DeleteShareGroupOffsetsResponseTopic]]:
    """The share coordinator has answered: a topic is through if it has refused none of its partitions."""
    refusals: dict[bytes, Refusal] = {}
    for key, refusal in results.items():
        if refusals.get(key.topic_id, DONE).error_code is NONE:
            refusals[key.topic_id] = refusal
    topics = [
        _deletion(view.topic_names.get(topic_id, states.deleting.get(topic_id, "")), topic_id, refusal)
        for topic_id, refusal in sorted(refusals.items(), key=lambda one: (one[1].error_code != NONE, one[0]))
    ]
    gone = {topic_id for topic_id, refusal in refusals.items() if refusal.error_code is NONE}
    deleting = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in gone}
    return states._replace(deleting=deleting), topics


def without_deleted(states: PartitionStates, view: ClusterView) -> PartitionStates:
    """Without topics that are no more: the share coordinator deletes their states by itself."""
    names = view.topic_names
    if all(topic_id in names for part in states for topic_id in part):
        return states
    return PartitionStates(
        {topic_id: one for topic_id, one in states.initializing.items() if topic_id in names},
        {topic_id: one for topic_id, one in states.initialized.items() if topic_id in names},
        {topic_id: name for topic_id, name in states.deleting.items() if topic_id in names},
    )


# Small things


def _united(these: TopicsWithStates, those: TopicsWithStates) -> dict[bytes, TopicStates]:
    united = dict(these)
    for topic_id, one in those.items():
        known = united.get(topic_id)
        united[topic_id] = (
            one if known is None else one._replace(partitions=known.partitions | one.partitions)
        )
    return united


def _all_of(topic_id: bytes, view: ClusterView) -> TopicStates:
    name = view.topic_names[topic_id]
    return TopicStates(name, frozenset(range(len(view.topics[name].partitions))))


def _keys(group_id: str, topics: TopicsWithStates) -> list[SharePartitionKey]:
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, one in sorted(topics.items())
        for index in sorted(one.partitions)
    ]


def _alteration(index: int, refusal: Refusal) -> alter.AlterShareGroupOffsetsResponsePartition:
    return alter.AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=refusal.error_code, error_message=_message_of(refusal)
    )


def _deletion(name: str, topic_id: bytes, refusal: Refusal) -> delete.DeleteShareGroupOffsetsResponseTopic:
    return delete.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        error_code=refusal.error_code,
        error_message=_message_of(refusal),
    )


def _message_of(refusal: Refusal) -> str | None:
    if refusal.error_code is NONE:
        return None
    return refusal.error_message or error_message(refusal.error_code)
