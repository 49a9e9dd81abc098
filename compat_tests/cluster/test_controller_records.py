"""The same requests to a controller of Apache Kafka and to ours: the same responses, and the same records in
their logs.

Values that each side makes up (ids, epochs) are compared by common names. The requests are a random walk over
four brokers, their topics, settings, users and ACLs, the same for both; some make no sense on purpose.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from compat_tests.differential.harness import Pair, Side
from compat_tests.quorum import Controllers
from odradek.coordinator.cluster.features import FEATURES
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import ClusterView
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import alter_partition, assign_replicas_to_dirs, fetch, metadata_records
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.records import iter_records, iter_whole_batches
from tests.tiers import NIGHTLY

METADATA_ID = bytes(15) + b"\1"
BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
NEVER_OVER_MS = "3600000"
STEPS = 200
PROPERTIES = {
    "broker.session.timeout.ms": NEVER_OVER_MS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # Elections are asked for.
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "2",
}
OF_KAFKA_ALONE = (
    # To be heard by those who follow in older versions; and the controllers of a quorum among themselves.
    metadata_records.NoOpRecord,
    metadata_records.RegisterControllerRecord,
)


IN_ANY_ORDER = ("PartitionChangeRecord", "ConfigRecord", "RemoveAccessControlEntryRecord")
OF_ACLS = (metadata_records.AccessControlEntryRecord, metadata_records.RemoveAccessControlEntryRecord)


SEEDS = [*range(1, 10), 12, 13, 15, 16, 17, 19] if NIGHTLY else [1, 2]
"""Seeds of walks; others come to the differences that docs/differences.md names under "A controller"."""


class _Ours(Controllers):
    are_ours = True


class _Kafkas(Controllers):
    are_ours = False


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The two controllers; nobody else speaks to them."""
    with ExitStack() as ending:
        sides = []
        for name, kind in (("kafka", _Kafkas), ("odradek", _Ours)):
            controllers = ending.enter_context(kind(PROPERTIES))
            assert isinstance(controllers, Controllers)
            side = Side(name, controllers.bootstrap_servers)
            ending.callback(side.close)
            side.values["cluster"] = controllers.cluster_id
            sides.append(side)
        yield Pair(*sides, {})


class Walk:
    """Requests by chance, the same for both sides, and what they have made."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = random.Random(seed)
        self.asked = 0
        self.ended: set[int] = set()
        """Brokers that were told to end: they come back as the same process, since Kafka's controller lets
        another one wait until their session is over, and ours does not."""
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.steps: dict[Callable[[], None], int] = {
            self.register: 6,
            self.beat: 12,
            self.create: 14,
            self.grow: 6,
            self.delete: 3,
            self.configure: 10,
            self.alter_isr: 20,
            self.elect: 8,
            self.reassign: 10,
            self.list_reassignments: 2,
            self.assign: 6,
            self.quotas: 5,
            self.users: 5,
            self.acls: 6,
            self.producer_ids: 3,
            self.unregister: 1,
        }

    def go(self) -> None:
        for broker in BROKERS:
            self.register(broker)
            self.beat(broker, fence=False, stop=False)
        while self.asked < STEPS:
            (step,) = self.chance.choices(list(self.steps), list(self.steps.values()))
            step()

    def ask(self, build: Callable[[Side], Any], version: int, **more: Any) -> tuple[Any, Any]:
        self.asked += 1
        return self.pair.ask(build, version, f"request {self.asked}", **more)

    # Brokers

    def register(self, broker: int | None = None) -> None:
        broker = self.chance.choice(BROKERS) if broker is None else broker
        is_new = self.chance.random() < 0.7 and broker not in self.ended
        number = self.incarnations[broker] + is_new
        incarnation = bytes([broker]) + number.to_bytes(15, "big")
        features = [
            Feature(name=name, min_supported_version=one.lowest, max_supported_version=one.highest)
            for name, one in FEATURES.items()
        ]
        rack = self.chance.choice([None, "r1"])

        def build(side: Side) -> BrokerRegistrationRequest:
            return BrokerRegistrationRequest(
                broker_id=broker,
                cluster_id=side["cluster"],
                incarnation_id=incarnation,
                listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker)],
                features=features,
                rack=rack,
                log_dirs=[directory(broker, 1), directory(broker, 2)],
                previous_broker_epoch=-1,
            )

        def see(side: Side, answer: Any) -> None:
            if answer.error_code == 0:
                self.incarnations[broker] = number
                name = f"epoch {number} of {broker}"
                for field in ("broker_epoch", "epoch"):
                    side.remember(name, answer.broker_epoch, field)
                side.values[f"epoch of {broker}"] = answer.broker_epoch

        leads = {ErrorCode.NOT_CONTROLLER, ErrorCode.UNSUPPORTED_VERSION}
        _, answer = self.ask(build, 4, see=see, settle=lambda answer: answer.error_code not in leads)
        if answer.error_code == 0:
            self.beat(broker, fence=False, stop=False)

    def beat(
        self,
        broker: int | None = None,
        *,
        fence: bool | None = None,
        stop: bool | None = None,
        is_again: bool = False,
    ) -> None:
        broker = self.chance.choice(BROKERS) if broker is None else broker
        fence = self.chance.random() < 0.15 if fence is None else fence
        stop = self.chance.random() < 0.15 if stop is None else stop
        failed = [directory(broker, 2)] if self.chance.random() < 0.05 and not is_again else []
        knows_all = is_again or self.chance.random() < 0.9

        def build(side: Side) -> BrokerHeartbeatRequest:
            return BrokerHeartbeatRequest(
                broker_id=broker,
                broker_epoch=side.values.get(f"epoch of {broker}", 7),
                current_metadata_offset=2**40 if knows_all else 0,
                want_fence=fence,
                want_shut_down=stop,
                offline_log_dirs=failed,
            )

        _, answer = self.ask(build, 2)
        if answer.should_shut_down:
            self.ended.add(broker)
        elif not stop and not is_again:
            # Kafka forgets how far a broker has applied the metadata when its registration changes, until its
            # next heartbeat. Until then no other may end.
            self.beat(broker, fence=fence, stop=stop, is_again=True)

    def unregister(self) -> None:
        broker = self.chance.choice((*BROKERS, 99))
        self.ask(lambda side: UnregisterBrokerRequest(broker_id=broker), 0)

    def producer_ids(self) -> None:
        broker = self.chance.choice(BROKERS)

        def build(side: Side) -> AllocateProducerIdsRequest:
            epoch = side.values.get(f"epoch of {broker}", -1)
            return AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)

        self.ask(build, 0)

    # Topics

    def replicas(self) -> list[int]:
        count = self.chance.choice([1, 2, 3, 3, 3])
        return self.chance.sample(BROKERS, count)

    def create(self) -> None:
        name = self.chance.choice(TOPICS)
        replicas = self.replicas()
        factor = len(replicas) if self.chance.random() < 0.9 else 1
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=self.chance.sample(BROKERS, factor))
            for index in range(self.chance.choice([1, 2]))
        ]
        configs = [
            CreatableTopicConfig(name="retention.ms", value=self.chance.choice(["1000", "x"])),
            CreatableTopicConfig(name="min.insync.replicas", value="1"),
        ][: self.chance.choice([0, 0, 1, 2])]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )

        def see(side: Side, answer: Any) -> None:
            (created,) = answer.topics
            if created.error_code == 0:
                side.remember(f"id of {name}, request {self.asked}", created.topic_id)
                side.values[f"id of {name}"] = created.topic_id

        self.ask(lambda side: CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, see=see)

    def grow(self) -> None:
        name, count = self.chance.choice(TOPICS), self.chance.choice([2, 3])
        one = CreatePartitionsTopic(
            name=name, count=count, assignments=[CreatePartitionsAssignment(broker_ids=self.replicas())]
        )
        self.ask(lambda side: CreatePartitionsRequest(topics=[one], timeout_ms=30_000), 3)

    def delete(self) -> None:
        name = self.chance.choice(TOPICS)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        self.ask(lambda side: request, 6)

    def elect(self) -> None:
        wanted = None
        if self.chance.random() < 0.8:
            wanted = [TopicPartitions(topic=self.chance.choice(TOPICS), partitions=[0, 1])]
        kind = self.chance.choice([0, 0, 1])
        request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
        self.ask(lambda side: request, 2, any_order=True)

    def reassign(self) -> None:
        replicas = None if self.chance.random() < 0.25 else self.replicas()
        name, index = self.chance.choice(TOPICS), self.chance.choice([0, 1])
        known = view_of(self.pair.kafka).partition(name, index)
        if replicas is not None and known is not None and (known.adding or known.removing):
            # Kafka takes the replicas that are being added for old ones then, and ours does not.
            return
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=[partition])
        self.ask(lambda side: AlterPartitionReassignmentsRequest(topics=[topic]), 1)

    def list_reassignments(self) -> None:
        self.ask(lambda side: ListPartitionReassignmentsRequest(topics=None), 0, any_order=True)

    def alter_isr(self) -> None:
        """The leader of a partition says who is in sync, by the epochs of brokers."""
        name, index = self.chance.choice(TOPICS), self.chance.choice([0, 1])
        view = view_of(self.pair.kafka)
        topic = view.topics.get(name)
        if topic is None or index >= len(topic.partitions) or topic.partitions[index].leader < 0:
            return
        known = topic.partitions[index]
        count = self.chance.randrange(1, len(known.replicas) + 1)
        in_sync = self.chance.sample(known.replicas, count)
        if self.chance.random() < 0.9 and known.leader not in in_sync:
            in_sync.append(known.leader)
        is_stale = self.chance.random() < 0.1

        def build(side: Side) -> alter_partition.AlterPartitionRequest:
            partition = alter_partition.PartitionData(
                partition_index=index,
                leader_epoch=known.leader_epoch - is_stale,
                new_isr_with_epochs=[
                    alter_partition.BrokerState(
                        broker_id=one, broker_epoch=side.values.get(f"epoch of {one}", -1)
                    )
                    for one in in_sync
                ],
                partition_epoch=known.partition_epoch,
            )
            return alter_partition.AlterPartitionRequest(
                broker_id=known.leader,
                broker_epoch=side.values.get(f"epoch of {known.leader}", -1),
                topics=[
                    alter_partition.TopicData(topic_id=side.values[f"id of {name}"], partitions=[partition])
                ],
            )

        self.ask(build, 3)

    def assign(self) -> None:
        """A broker tells in which directory a replica is."""
        broker, name = self.chance.choice(BROKERS), self.chance.choice(TOPICS)
        where = self.chance.choice([directory(broker, 1), directory(broker, 2), directory(9, 9)])

        def build(side: Side) -> assign_replicas_to_dirs.AssignReplicasToDirsRequest:
            topic = assign_replicas_to_dirs.TopicData(
                topic_id=side.values.get(f"id of {name}", bytes(15) + b"\7"),
                partitions=[assign_replicas_to_dirs.PartitionData(partition_index=0)],
            )
            return assign_replicas_to_dirs.AssignReplicasToDirsRequest(
                broker_id=broker,
                broker_epoch=side.values.get(f"epoch of {broker}", -1),
                directories=[assign_replicas_to_dirs.DirectoryData(id=where, topics=[topic])],
            )

        self.ask(build, 0)

    # The rest

    def configure(self) -> None:
        kind, name = self.chance.choice([(2, one) for one in TOPICS] + [(4, ""), (4, "1"), (4, "77")])
        value = self.chance.choice(["1", "2", "5000", "-3", "x"])
        option = self.chance.choice(["retention.ms", "min.insync.replicas", "cleanup.policy", "no.such"])
        if kind == 4:
            # Kafka's controller leaves it to the broker in front to look at names and values.
            option = self.chance.choice(["log.retention.ms", "min.insync.replicas"])
            value = self.chance.choice(["1", "2", "5000"])
            if name:
                # Of two faults in one request each side names another.
                option = "log.retention.ms"
        config = AlterableConfig(name=option, config_operation=self.chance.choice([0, 0, 0, 1]), value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        self.ask(lambda side: IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def quotas(self) -> None:
        entity = [EntityData(entity_type="user", entity_name=self.chance.choice(["u", None]))]
        if self.chance.random() < 0.3:
            entity.append(EntityData(entity_type="client-id", entity_name="c"))
        key = self.chance.choice(["producer_byte_rate", "request_percentage", "no.such"])
        op = OpData(key=key, value=self.chance.choice([10.0, 20.0]), remove=self.chance.random() < 0.3)
        self.ask(lambda side: AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)

    def users(self) -> None:
        name = self.chance.choice(["ann", "bob"])
        if self.chance.random() < 0.3:
            request = AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=name, mechanism=1)], upsertions=[]
            )
        else:
            iterations = self.chance.choice([4096, 8192, 100])
            one = ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=iterations, salt=b"salt", salted_password=b"s" * 32
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])
        self.ask(lambda side: request, 0)

    def acls(self) -> None:
        name = self.chance.choice(TOPICS)
        principal = self.chance.choice(["User:ann", "User:bob", "bad"])
        request: CreateAclsRequest | DeleteAclsRequest
        if self.chance.random() < 0.7:
            one = AclCreation(
                resource_type=2, resource_name=name, principal=principal, host="*", operation=3,
                permission_type=3,
            )  # fmt: skip
            request = CreateAclsRequest(creations=[one])
        else:
            wanted = DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=name, principal_filter=None, host_filter=None,
                operation=1, permission_type=1,
            )  # fmt: skip
            request = DeleteAclsRequest(filters=[wanted])
        self.ask(lambda side: request, 3, any_order=True)


def directory(broker: int, number: int) -> bytes:
    return bytes(14) + bytes([broker + 100, number])


def records_of(side: Side) -> Iterator[tuple[int, Any]]:
    """Version and content of each record of a side's log."""
    offset, epoch, last_epoch = 0, 0, 0
    while True:
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
            high_watermark=2**63 - 1,
        )
        request = fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=9_999, replica_epoch=-1),
            max_wait_ms=0,
            topics=[fetch.FetchTopic(topic_id=METADATA_ID, partitions=[partition])],
        )
        answer = side.ask(request, 17, "log")
        (data,) = answer.responses[0].partitions
        if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            epoch = data.current_leader.leader_epoch
            continue
        assert data.error_code == 0, data
        content = bytes(data.records or b"")
        if not content:
            return
        for position, header in iter_whole_batches(content):
            offset, last_epoch = header.last_offset + 1, header.leader_epoch
            if not header.is_control:
                for record in iter_records(content[position:], header):
                    yield record.value[2], metadata_records.decode_metadata_record(record.value)


def view_of(side: Side) -> ClusterView:
    """The state that the records of a side make."""
    image = MetadataImage(9_999, "")
    for _, record in records_of(side):
        image.replay(record)
    image.end_batch(0)
    image.publish()
    return image.view


def plain_records(side: Side) -> list[list[Any]]:
    """Name, version and fields of each record, as far as they can be compared with the other side's. Kafka
    has changes of partitions and settings in the order of a hash table: those that come together are
    sorted."""
    found: list[list[Any]] = []
    acl_ids: dict[bytes, int] = {}
    for version, record in records_of(side):
        if isinstance(record, OF_KAFKA_ALONE):
            continue
        plain = side.plain(record, version)
        if isinstance(record, OF_ACLS):
            plain["id"] = acl_ids.setdefault(bytes(record.id), len(acl_ids))
        found.append([type(record).__name__, version, plain])
    in_order: list[list[Any]] = []
    for name, group in itertools.groupby(found, key=lambda one: one[0]):
        together = list(group)
        in_order += sorted(together, key=str) if name in IN_ANY_ORDER else together
    return in_order


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_give_the_same_responses_and_records(pair: Pair, seed: int) -> None:
    walk = Walk(pair, seed)
    with pair.collecting():
        walk.go()
    theirs, ours = (plain_records(side) for side in pair.sides)
    with pair.collecting():
        for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            pair.compare(f"record {number}", one, other)
    assert len(theirs) == len(ours)
