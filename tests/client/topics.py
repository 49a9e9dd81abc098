"""What the tests of the Spark package do to a broker: topics, batches and transactions, by the client
itself.
"""

import itertools

from odradek.client.client_error import error_codes
from odradek.client.cluster import ANY_NODE, coordinator_of, leader_of
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch, iter_records, iter_whole_batches

_numbers = itertools.count()


def ask(cluster, target, request, **options):
    answer = cluster.ask(target, request, **options)
    assert not list(error_codes(answer)), answer
    return answer


def create_topic(cluster, partitions=1, name=None):
    name = name or f"topic-{next(_numbers)}"
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    ask(cluster, ANY_NODE, CreateTopicsRequest(topics=[topic]))
    return name


def delete_topic(cluster, name):
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    ask(cluster, ANY_NODE, request)


def delete_records(cluster, topic, partition, offset):
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[wanted])]
    ask(cluster, leader_of(topic, partition), DeleteRecordsRequest(topics=topics, timeout_ms=10_000))


def produce_batch(cluster, topic, partition, batch, transactional_id=None):
    """Appends one batch that is built already; its base offset in the log."""
    data = [PartitionProduceData(index=partition, records=bytes(batch))]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = ask(cluster, leader_of(topic, partition), request, version_max=11)
    return answer.responses[0].partition_responses[0].base_offset


def produce(cluster, topic, partition, values, *, timestamp=1000, **batch):
    records = [(index, timestamp + index, b"k%d" % index, value, ()) for index, value in enumerate(values)]
    return produce_batch(cluster, topic, partition, build_batch(records, **batch))


def write_hanging(cluster, topic, producer_id, *, timestamp):
    """Records of a transaction of which no coordinator knows."""
    batch = build_batch(
        [(0, timestamp, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return produce_batch(cluster, topic, 0, batch, f"id-of-{producer_id}")


class Transactions:
    """A transactional producer of batches, one transaction at a time."""

    def __init__(self, cluster, transactional_id, timeout_ms=60_000):
        self.cluster, self.transactional_id = cluster, transactional_id
        self.coordinator = coordinator_of("transaction", transactional_id)
        answer = ask(
            cluster,
            self.coordinator,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms),
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}

    def write(self, topic, partition, values):
        added = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            # In the form of clients: from version 4 on brokers ask for several.
        )
        ask(self.cluster, self.coordinator, added, version_max=3)
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        batch = build_batch(
            [(index, 2000 + index, None, value, ()) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return produce_batch(self.cluster, topic, partition, batch, self.transactional_id)

    def end(self, committed):
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        ask(self.cluster, self.coordinator, request, version_max=4)


def records_in(buffer):
    """(offset, value) of every record of data, in order."""
    return [
        (record.offset, record.value)
        for position, header in iter_whole_batches(buffer)
        if not header.is_control
        for record in iter_records(buffer[position : position + header.size_bytes])
    ]
