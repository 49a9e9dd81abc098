"""A client for tests of the broker's clock: silent members, transactions that nobody ends, records."""

import time

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    describe_groups,
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
)
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from tests.raw_client import RawClient

PATIENCE_S = 120
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
GROUP_RESOURCE = 32
ASK_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
FEW_PARTITIONS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}
"""Their topics take less time to be made."""


class Client(RawClient):
    """One connection."""

    def until(self, response_of, code_of=lambda response: response.error_code):
        """The first response that is not about a coordinator that is still to come."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = response_of()
            if code_of(response) not in ASK_AGAIN:
                return response
            assert time.monotonic() < deadline, ErrorCode(code_of(response)).name
            time.sleep(0.005)

    def find(self, key, kind=GROUP):
        request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        self.until(lambda: self.ask(request, 4).coordinators[0])

    # Topics and records

    def create(self, name="t", partitions=1, **configs):
        wanted = [
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=wanted
        )
        response = self.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert response.topics[0].error_code == 0, response

    def topic_id(self, name="t"):
        topics = [metadata.MetadataRequestTopic(name=name)]
        request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.ask(request, 12).topics[0].topic_id

    def configure_group(self, group, **configs):
        changes = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=0, value=value)
            for key, value in configs.items()
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=changes
        )
        response = self.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert response.responses[0].error_code == 0

    def produce(self, *pairs, name="t", timestamp_ms=None, transactional_id=None, **batch):
        """The response of the partition; a pair is (key, value)."""
        at_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        records = [Record(number, at_ms, key, value) for number, (key, value) in enumerate(pairs)]
        data = produce.PartitionProduceData(
            index=0, records=build_batch(records, transactional=transactional_id is not None, **batch)
        )
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            transactional_id=transactional_id,
            topic_data=[produce.TopicProduceData(name=name, partition_data=[data])],
        )
        return self.ask(request, 9)

    def records(self, name="t", offset=0, isolation=0, wait_ms=0, index=0):
        """(offset, timestamp, key, value) from an offset on."""
        wanted = fetch.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[fetch.FetchTopic(topic=name, partitions=[wanted])],
        )
        response = self.ask(request, 11).responses[0].partitions[0]
        assert response.error_code == 0, ErrorCode(response.error_code)
        content = bytes(response.records or b"")
        return [
            (record.offset, record.timestamp, record.key, record.value)
            for position, header in iter_whole_batches(content)
            if not header.is_control
            for record in iter_records(memoryview(content)[position:], header)
        ]

    def offset_at(self, timestamp, name="t", isolation=0):
        """-2: the log start, -1: the end."""
        wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = list_offsets.ListOffsetsTopic(name=name, partitions=[wanted])
        request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
        return self.ask(request, 7).topics[0].partitions[0].offset

    def producers(self, name="t"):
        topic = describe_producers.TopicRequest(name=name, partition_indexes=[0])
        response = self.ask(describe_producers.DescribeProducersRequest(topics=[topic]), 0)
        return [one.producer_id for one in response.topics[0].partitions[0].active_producers]

    # Groups

    def join(self, group="g", member_id="", session_ms=45_000, rebalance_ms=60_000):
        """A classic member that leads its group, or is alone in it; it has its id."""
        request = join_group.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = self.until(lambda: self.ask(request, 5))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(group, joined.member_id, session_ms, rebalance_ms)
        assert joined.error_code == 0, ErrorCode(joined.error_code)
        return joined

    def sync(self, joined, group="g"):
        assignments = [
            sync_group.SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"x")
            for one in joined.members
        ]
        request = sync_group.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=assignments,
        )
        assert self.ask(request, 3).error_code == 0

    def described(self, group="g"):
        return self.ask(describe_groups.DescribeGroupsRequest(groups=[group]), 5).groups[0]

    def group_state(self, group="g"):
        """None: there is no such group."""
        groups = self.ask(list_groups.ListGroupsRequest(), 5).groups
        return {one.group_id: one.group_state for one in groups}.get(group)

    def beat(self, group="g", member_id="m", epoch=0, **fields):
        if not epoch:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, **fields
        )
        return self.until(lambda: self.ask(request, 1))

    def consumer_members(self, group="g"):
        request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group])
        return {one.member_id for one in self.ask(request, 1).groups[0].members}

    def commit(self, offset, joined=None, group="g", name="t", retention_ms=None):
        """`retention_ms`: for how long, in place of `offsets.retention.minutes`."""
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])
        version = 7
        if retention_ms is not None:
            version, request.retention_time_ms = 4, retention_ms
        if joined is not None:
            request.generation_id_or_member_epoch = joined.generation_id
            request.member_id = joined.member_id
        response = self.until(
            lambda: self.ask(request, version), lambda response: response.topics[0].partitions[0].error_code
        )
        assert response.topics[0].partitions[0].error_code == 0

    def committed(self, group="g", name="t"):
        topic = offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0])
        response = self.ask(offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic]), 5)
        return response.topics[0].partitions[0].committed_offset

    def share_beat(self, group="s", member_id="m", epoch=0):
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=["t"]
        )
        return self.until(lambda: self.ask(request, 1))

    def share_members(self, group="s"):
        request = share_group_describe.ShareGroupDescribeRequest(group_ids=[group])
        return {one.member_id for one in self.ask(request, 1).groups[0].members}

    def share_fetch(self, session_epoch, group="s", member_id="m"):
        """(first, last, delivery count) of what the member gets."""
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=[])
        request = share_fetch.ShareFetchRequest(
            group_id=group,
            member_id=member_id,
            share_session_epoch=session_epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id(), partitions=[partition])],
        )
        response = self.ask(request, 1)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for topic in response.responses
            for of_partition in topic.partitions
            for one in of_partition.acquired_records
        ]

    def share_fetch_some(self):
        """Asks `share_fetch` from the first session on until there are some; (epoch of the next, they)."""
        deadline = time.monotonic() + PATIENCE_S
        epoch = 0
        while not (found := self.share_fetch(epoch)):
            assert time.monotonic() < deadline
            epoch += 1
        return epoch + 1, found

    # Transactions

    def begin(self, transactional_id="tx", timeout_ms=60_000):
        """A transaction with a record in `t`."""
        self.find(transactional_id, TRANSACTION)
        wanted = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        producer = self.until(lambda: self.ask(wanted, 4))
        assert producer.error_code == 0, ErrorCode(producer.error_code)
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])
        added = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[topic],
        )
        response = self.until(
            lambda: self.ask(added, 3),
            lambda response: (
                response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        produced = self.produce(
            (b"k", b"open"),
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        assert produced.responses[0].partition_responses[0].error_code == 0
        return producer

    def transaction_state(self, transactional_id="tx"):
        """None: nobody knows it."""
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = self.ask(request, 0).transaction_states[0]
        return None if response.error_code else response.transaction_state
