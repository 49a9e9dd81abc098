"""Requests to the share coordinator about one share partition, as messages, and what is in the responses."""

from odradek.apis import share_state
from odradek.apis.coordinators import asked_by
from odradek.coordinator.asked import Asked, Client
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.share_batches import Batch

CLIENT = Client("client", "/host", 1)
APIS = {api.request: api for api in share_state.APIS}


def initialize(key, state_epoch, start_offset):
    module = initialize_share_group_state
    one = module.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
    topic = module.InitializeStateData(topic_id=key.topic_id, partitions=[one])
    return module.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def read(key, leader_epoch):
    module = read_share_group_state
    one = module.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    topic = module.ReadStateData(topic_id=key.topic_id, partitions=[one])
    return module.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def change(key, state_epoch, leader_epoch, start_offset, delivery_complete_count=-1, batches=()):
    """What is to be written; `batches` are `Batch`es, or batches of the wire."""
    return write_share_group_state.PartitionData(
        partition=key.partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[
            state_batch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in batches
        ],
    )


def write(key, *fields):
    """Those of `change`."""
    module = write_share_group_state
    topic = module.WriteStateData(topic_id=key.topic_id, partitions=[change(key, *fields)])
    return module.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def delete(key):
    module = delete_share_group_state
    one = module.PartitionData(partition=key.partition)
    topic = module.DeleteStateData(topic_id=key.topic_id, partitions=[one])
    return module.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def summarize(key):
    module = read_share_group_state_summary
    one = module.PartitionData(partition=key.partition, leader_epoch=-1)
    topic = module.ReadStateSummaryData(topic_id=key.topic_id, partitions=[one])
    return module.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])


def state_batch(first, last, state, count):
    return write_share_group_state.StateBatch(
        first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
    )


def asked(request, take) -> Asked:
    """The request on its way; `take` gets the response, or the refusal."""
    return asked_by(CLIENT, APIS[type(request)].refuse, request, take)


def result_of(response):
    """The result of the one share partition."""
    (topic,) = response.results
    (result,) = topic.partitions
    return result


def batches_in(result) -> list[Batch]:
    """Those of a state that was read."""
    return [
        Batch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state)
        for one in result.state_batches
    ]
