"""The metadata log of Apache Kafka's controllers: our codec reads it and writes the same bytes, log and
snapshots make the same image, and a controller understands our requests.

One combined node of Kafka decides; a second broker, of a few requests of ours, is registered beside it, so
that there are in-sync replicas to change, leaders to move and directories to lose.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from compat_tests import reference
from compat_tests.reference import kafka_tool
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import ClusterView
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import allocate_producer_ids as producer_ids
from odradek.wire.messages import (
    alter_client_quotas,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    envelope,
    fetch,
    fetch_snapshot,
    incremental_alter_configs,
    metadata_records,
    unregister_broker,
    update_features,
)
from odradek.wire.messages.metadata_records import (
    ControlRecord,
    encode_control_record,
    encode_metadata_record,
    frame_of,
    records_of_batch,
)
from odradek.wire.records import BatchHeader, Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.schema import BYTES, UUID, Array, Primitive, fields_of, uuid_to_text
from tests.raw_client import RawClient
from tests.wire.message_samples import Samples

METADATA_ID = bytes(15) + b"\x01"
KAFKA, OURS = 1, 2
FEATURES = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (21, 33),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "replica.lag.time.max.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
DEADLINE_SECONDS = 60


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen that {what}"
        time.sleep(0.05)
    return found


class Observer:
    """Follows the metadata log over Fetch, as a broker does, into an image."""

    def __init__(self, port: int, cluster_id: str) -> None:
        self.client = RawClient(port)
        self.image = MetadataImage(OURS, cluster_id)
        self.cluster_id = cluster_id
        self.snapshots = 0
        self._next_offset = 0
        self._epochs = (0, 0)

    def view(self) -> ClusterView:
        """The newest view."""
        while self._fetch():
            pass
        self.image.publish()
        return self.image.view

    def _fetch(self) -> bool:
        current_epoch, last_epoch = self._epochs
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=current_epoch,
            fetch_offset=self._next_offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1_000_000,
            replica_directory_id=bytes(range(16)),
        )
        request = fetch.FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=OURS, replica_epoch=-1),
            max_wait_ms=0,
            min_bytes=1,
            topics=[fetch.FetchTopic(topic_id=METADATA_ID, partitions=[partition])],
        )
        answer = self.client.ask(request, 17)
        assert answer.error_code == 0
        data = answer.responses[0].partitions[0]
        if data.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            self._epochs = (data.current_leader.leader_epoch, last_epoch)
            return True
        assert data.error_code == 0
        if data.snapshot_id is not None and data.snapshot_id.end_offset >= 0:
            self.load(data.snapshot_id)
            return True
        for header, batch in batches_of(bytes(data.records or b"")):
            if header.last_offset >= data.high_watermark:
                break
            for record in records_of_batch(batch, header):
                self.image.replay(record)
            self.image.end_batch(header.last_offset)
            self._next_offset = header.last_offset + 1
            self._epochs = (current_epoch, header.leader_epoch)
        return self._next_offset < data.high_watermark

    def load(self, snapshot_id: fetch.SnapshotId) -> None:
        """In small pieces, so that batches are cut."""
        content = b""
        size = 1
        while len(content) < size:
            piece = fetch_snapshot.PartitionSnapshot(
                partition=0,
                current_leader_epoch=self._epochs[0],
                snapshot_id=fetch_snapshot.SnapshotId(
                    end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
                ),
                position=len(content),
            )
            answer = self.client.ask(
                fetch_snapshot.FetchSnapshotRequest(
                    cluster_id=self.cluster_id,
                    replica_id=OURS,
                    max_bytes=700,
                    topics=[fetch_snapshot.TopicSnapshot(name="__cluster_metadata", partitions=[piece])],
                ),
                1,
            )
            assert answer.error_code == 0
            got = answer.topics[0].partitions[0]
            assert (got.error_code, got.position) == (0, len(content))
            size = got.size
            content += bytes(got.unaligned_records)
        self.image.begin_snapshot()
        for header, batch in batches_of(content):
            for record in records_of_batch(batch, header):
                self.image.replay(record)
        self.image.end_batch(snapshot_id.end_offset - 1)
        self.snapshots += 1
        self._next_offset = snapshot_id.end_offset
        self._epochs = (self._epochs[0], snapshot_id.epoch)


class OurBroker:
    """A broker of a few requests: it is registered and sends heartbeats, and has no data."""

    def __init__(self, kafka: reference.Kafka, cluster_id: str) -> None:
        self.client = RawClient(kafka.controller_port)
        self.observer = Observer(kafka.controller_port, cluster_id)
        self.directories = sorted(os.urandom(16) for _ in range(3))
        registration = broker_registration.BrokerRegistrationRequest(
            broker_id=OURS,
            cluster_id=cluster_id,
            incarnation_id=os.urandom(16),
            listeners=[broker_registration.Listener(name="PLAINTEXT", host="127.0.0.1", port=9)],
            features=[
                broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in FEATURES.items()
            ],
            rack="ours",
            log_dirs=self.directories,
        )
        answer = self.client.ask(registration, 4)
        assert answer.error_code == 0
        self.epoch = answer.broker_epoch

    def beat(self, **wanted: Any) -> broker_heartbeat.BrokerHeartbeatResponse:
        self.observer.view()
        request = broker_heartbeat.BrokerHeartbeatRequest(
            broker_id=OURS,
            broker_epoch=self.epoch,
            current_metadata_offset=self.observer.image.offset,
            **wanted,
        )
        answer: broker_heartbeat.BrokerHeartbeatResponse = self.client.ask(request, 2)
        assert answer.error_code == 0
        return answer

    def wait(self, condition: Callable[[ClusterView], Any], what: str, **wanted: Any) -> Any:
        """Until the view is so; heartbeats go on."""

        def holds() -> Any:
            self.beat(**wanted)
            return condition(self.observer.view())

        return wait_until(holds, what)

    def lead_alone(self, topic: str) -> alter_partition.AlteredPartition:
        """The leader says that nobody but itself is in sync."""
        view = self.observer.view()
        partition = view.partition(topic, 0)
        assert partition is not None
        assert partition.leader == OURS
        changed = alter_partition.PartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[alter_partition.BrokerState(broker_id=OURS, broker_epoch=self.epoch)],
            partition_epoch=partition.partition_epoch,
        )
        request = alter_partition.AlterPartitionRequest(
            broker_id=OURS,
            broker_epoch=self.epoch,
            topics=[
                alter_partition.TopicData(topic_id=view.topics[topic].topic_id, partitions=[changed]),
            ],
        )
        answer = self.client.ask(request, 3)
        assert answer.error_code == 0
        altered: alter_partition.AlteredPartition = answer.topics[0].partitions[0]
        return altered

    def assign(self, topic: str, directory: bytes) -> int:
        """Tells where the replica is; the error code of its partition."""
        topic_id = self.observer.view().topics[topic].topic_id
        partitions = [assign_replicas_to_dirs.PartitionData(partition_index=0)]
        topics = [assign_replicas_to_dirs.TopicData(topic_id=topic_id, partitions=partitions)]
        request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
            broker_id=OURS,
            broker_epoch=self.epoch,
            directories=[assign_replicas_to_dirs.DirectoryData(id=directory, topics=topics)],
        )
        answer = self.client.ask(request, 0)
        assert answer.error_code == 0
        code: int = answer.directories[0].topics[0].partitions[0].error_code
        return code

    def forward(self, request: Any, version: int) -> Any:
        """A client's request in an envelope; the answer to the client."""
        principal = envelope.DefaultPrincipalData(type="User", name="ANONYMOUS")
        answer = self.client.ask(
            envelope.EnvelopeRequest(
                request_data=bytes(request_frame(request, version, 77, "somebody"))[4:],
                request_principal=envelope.encode_principal(principal),
                client_host_address=bytes([127, 0, 0, 1]),
            ),
            0,
        )
        assert answer.error_code == 0
        correlation_id, found = read_response(bytes(answer.response_data), type(request), version)
        assert correlation_id == 77
        return found


# --- What happens in the cluster ---


def create(client: RawClient, name: str, replicas: list[list[int]], **configs: str) -> None:
    assignments = [
        create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in enumerate(replicas)
    ]
    topic = create_topics.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    answer = client.ask(create_topics.CreateTopicsRequest(topics=[topic]), 7)
    assert [one.error_code for one in answer.topics] == [0], answer


def set_configs(client: RawClient, kind: int, name: str, key: str, value: str | None) -> None:
    config = incremental_alter_configs.AlterableConfig(
        name=key, config_operation=0 if value is not None else 1, value=value
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.ask(request, 1)
    assert [one.error_code for one in answer.responses] == [0], answer


def administer(client: RawClient) -> None:
    """Topics, settings, quotas, users, entries of access control, features: what one broker is enough for."""
    create(client, "plain", [[KAFKA], [KAFKA]], retention_ms="5000", cleanup_policy="compact")
    growth = create_partitions.CreatePartitionsTopic(name="plain", count=5, assignments=None)
    assert (
        client.ask(create_partitions.CreatePartitionsRequest(topics=[growth], timeout_ms=9000), 3)
        .results[0]
        .error_code
        == 0
    )
    create(client, "short-lived", [[KAFKA]], retention_ms="1")
    state = delete_topics.DeleteTopicState(name="short-lived")
    deleted = client.ask(delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=9000), 6)
    assert deleted.responses[0].error_code == 0
    create(client, "short-lived", [[KAFKA]])
    for kind, name, key, value in (
        (2, "plain", "retention.ms", "7000"),
        (2, "plain", "cleanup.policy", None),
        (4, "", "log.cleaner.threads", "2"),
        (4, "1", "log.cleaner.io.max.bytes.per.second", "1000000.0"),
        (16, "watch", "interval.ms", "60000"),
        (32, "group", "consumer.session.timeout.ms", "50000"),
        (4, "1", "log.cleaner.io.max.bytes.per.second", None),
    ):
        set_configs(client, kind, name, key, value)
    for remove in (False, False, True):
        entity = [
            alter_client_quotas.EntityData(entity_type="user", entity_name=None),
            alter_client_quotas.EntityData(entity_type="client-id", entity_name="b"),
        ]
        ops = [alter_client_quotas.OpData(key="producer_byte_rate", value=1500.0, remove=remove)]
        entries = [
            alter_client_quotas.EntryData(entity=entity, ops=ops),
            alter_client_quotas.EntryData(
                entity=entity[:1], ops=[alter_client_quotas.OpData(key="controller_mutation_rate", value=1.5)]
            ),
        ]
        answer = client.ask(alter_client_quotas.AlterClientQuotasRequest(entries=entries), 1)
        assert {one.error_code for one in answer.entries} == {0}
    scram = alter_user_scram_credentials
    for mechanism in (1, 2):
        user = scram.ScramCredentialUpsertion(
            name="alice", mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        answer = client.ask(scram.AlterUserScramCredentialsRequest(upsertions=[user]), 0)
        assert answer.results[0].error_code == 0, answer
    gone = scram.ScramCredentialDeletion(name="alice", mechanism=1)
    assert client.ask(scram.AlterUserScramCredentialsRequest(deletions=[gone]), 0).results[0].error_code == 0
    for name in ("plain", "other"):
        entry = create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        answer = client.ask(create_acls.CreateAclsRequest(creations=[entry]), 3)
        assert answer.results[0].error_code == 0, answer
    wanted = delete_acls.DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="other",
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert client.ask(delete_acls.DeleteAclsRequest(filters=[wanted]), 3).filter_results[0].error_code == 0
    for level in (0, 1):
        key = update_features.FeatureUpdateKey(
            feature="group.version", max_version_level=level, upgrade_type=1 if level else 2
        )
        answer = client.ask(update_features.UpdateFeaturesRequest(feature_updates=[key]), 2)
        assert answer.error_code == 0, answer


def replicate(client: RawClient, ours: OurBroker) -> None:
    """Leaders, in-sync replicas, directories, reassignments and a stop of the second broker."""
    ours.wait(lambda view: OURS in view.brokers, "our broker is unfenced", cordoned_log_dirs=[])
    create(client, "both", [[OURS, KAFKA]], min_insync_replicas="2")
    create(client, "theirs", [[KAFKA, OURS]])
    ours.wait(lambda view: "theirs" in view.topics, "the topics are there")
    altered = ours.lead_alone("both")
    assert (altered.error_code, altered.leader_id, altered.isr) == (0, OURS, [OURS])
    partition = ours.observer.view().partition("both", 0)
    assert partition is not None
    assert (partition.isr, partition.elr) == ((OURS,), (KAFKA,))
    assert partition.partition_epoch == altered.partition_epoch
    assert ours.lead_alone("both").error_code == 0
    ours.wait(lambda view: view.partition("theirs", 0).isr == (KAFKA,), "Kafka takes us out of the ISR")
    block = ours.client.ask(
        producer_ids.AllocateProducerIdsRequest(broker_id=OURS, broker_epoch=ours.epoch), 0
    )
    assert (block.error_code, block.producer_id_len) == (0, 1000)
    ours.observer.view()
    assert ours.observer.image.next_producer_id == block.producer_id_start + 1000
    assert ours.assign("both", ours.directories[1]) == 0
    assert ours.assign("theirs", ours.directories[0]) == 0
    reassigned = ours.forward(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="plain",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=0, replicas=[OURS]
                        )
                    ],
                )
            ]
        ),
        1,
    )
    assert reassigned.error_code == reassigned.responses[0].partitions[0].error_code == 0, reassigned
    moving = ours.wait(lambda view: view.partition("plain", 0).adding and view, "the reassignment begins")
    assert moving.partition("plain", 0).removing == (KAFKA,)
    lost = {"offline_log_dirs": [ours.directories[1]], "cordoned_log_dirs": [ours.directories[0]]}
    view = ours.wait(
        lambda view: (
            view.registrations[OURS].directories == (ours.directories[0], ours.directories[2]) and view
        ),
        "a directory is lost",
        **lost,
    )
    assert view.registrations[OURS].cordoned_directories == (ours.directories[0],)
    assert view.partition("both", 0).offline == (OURS,)
    assert view.partition("theirs", 0).offline == ()
    create(client, "led", [[OURS, KAFKA]])
    ours.wait(
        lambda view: view.registrations[OURS].in_controlled_shutdown, "it stops", want_shut_down=True, **lost
    )
    ours.wait(
        lambda view: view.leader_of("led", 0) == KAFKA, "its leadership goes", want_shut_down=True, **lost
    )
    wait_until(lambda: ours.observer.view().registrations[OURS].is_fenced, "our broker is fenced")
    request = unregister_broker.UnregisterBrokerRequest(broker_id=OURS)
    assert client.ask(request, 0).error_code == 0
    wait_until(lambda: OURS not in ours.observer.view().registrations, "our broker is forgotten")


# --- What is in the files ---


def batches_of(content: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and bytes of each whole batch."""
    for position, header in iter_whole_batches(content):
        yield header, content[position : position + header.size_bytes]


def image_of(*contents: bytes, until: int | None = None) -> MetadataImage:
    """The image that the batches make, up to an offset."""
    image = MetadataImage(OURS, "")
    for header, batch in (one for content in contents for one in batches_of(content)):
        if until is not None and header.last_offset >= until:
            break
        for record in records_of_batch(batch, header):
            image.replay(record)
        image.end_batch(header.last_offset)
    image.publish()
    return image


def comparable(view: ClusterView) -> tuple[ClusterView, dict[bytes, Any] | None]:
    """The view without what each reader counts for itself, and its ACLs by id."""
    acls = None if view.acls is None else dict(view.acls.by_id)
    return replace(view, version=0, features_epoch=0, cluster_id="", acls=None), acls


class Written(NamedTuple):
    log: pathlib.Path
    snapshots: list[pathlib.Path]
    """Without the one that formatting makes."""


class Observed(NamedTuple):
    written: Written
    view: ClusterView
    """What an observer has seen at the end,"""
    offset: int
    """of the records up to this one."""


def copied(directory: pathlib.Path, to: pathlib.Path) -> Written:
    shutil.copytree(directory, to)
    snapshots = [path for path in sorted(to.glob("*.checkpoint")) if int(path.stem.partition("-")[0])]
    return Written(to / f"{0:020}.log", snapshots)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The metadata log of a cluster in which all of that has happened."""
    directory = tmp_path_factory.mktemp("metadata") / "__cluster_metadata-0"
    with reference.Kafka(properties=PROPERTIES, jvm=reference.SMALL_JVM) as kafka:
        meta = (kafka.data_dir / "meta.properties").read_text()
        cluster_id = meta.partition("cluster.id=")[2].partition("\n")[0]
        with RawClient(kafka.port) as client:
            administer(client)
            ours = OurBroker(kafka, cluster_id)
            replicate(client, ours)
        newest = sorted((kafka.data_dir / directory.name).glob("*.checkpoint"))[-1]
        offset, epoch = map(int, newest.stem.split("-"))
        late = Observer(kafka.controller_port, cluster_id)
        # FetchSnapshot needs the leader epoch: with another one the controller fails at its own answer, and
        # says UNKNOWN_SERVER_ERROR.
        late.view()
        late.load(fetch.SnapshotId(end_offset=offset, epoch=epoch))
        view = ours.observer.view()
        assert comparable(late.view()) == comparable(view)
        kafka.stop()
        written = copied(kafka.data_dir / directory.name, directory)
    return Observed(written, view, ours.observer.image.offset)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The metadata log of Kafka 3.9 that began with the oldest metadata.version of KRaft, and went to the
    newest that 3.9 has.
    """
    directory = tmp_path_factory.mktemp("old") / "__cluster_metadata-0"
    properties = {"metadata.log.max.record.bytes.between.snapshots": "500"}
    with reference.Kafka(
        reference.OLDER, properties, formatting=("--release-version", "3.3-IV3"), jvm=reference.SMALL_JVM
    ) as kafka:
        with RawClient(kafka.port) as client:
            create(client, "before", [[KAFKA], [KAFKA]], retention_ms="5000")
            set_configs(client, 4, "1", "log.cleaner.threads", "2")
            key = update_features.FeatureUpdateKey(feature="metadata.version", max_version_level=21)
            answer = client.ask(update_features.UpdateFeaturesRequest(feature_updates=[key]), 1)
            assert answer.error_code == 0, answer
            create(client, "after", [[KAFKA]])
            for number in range(20):
                set_configs(client, 2, "before", "retention.ms", str(6000 + number))
        kafka.stop()
        return copied(kafka.data_dir / directory.name, directory)


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def written(version: str, request: pytest.FixtureRequest) -> Written:
    """The log of one of the two clusters."""
    if version == reference.OLDER:
        return request.getfixturevalue("upgraded")  # type: ignore[no-any-return]
    return request.getfixturevalue("observed").written  # type: ignore[no-any-return]


def test_every_record_comes_back_as_the_bytes_that_kafka_wrote(written: Written, version: str) -> None:
    types = set()
    for path in (written.log, *written.snapshots):
        for header, batch in batches_of(path.read_bytes()):
            pairs = zip(records_of_batch(batch, header), iter_records(batch, header), strict=True)
            for record, stored in pairs:
                types.add(type(record))
                if isinstance(record, ControlRecord):
                    assert encode_control_record(record) == (stored.key, stored.value)
                else:
                    frame = frame_of(stored.value or b"")
                    assert encode_metadata_record(record, frame.version) == stored.value
    if version == reference.OLDER:
        return
    known = {*metadata_records.RECORDS.values(), *metadata_records.CONTROL_RECORDS.values()}
    assert {one.__name__ for one in known - types} == {
        "AbortTransactionRecord",
        "DelegationTokenRecord",
        "FenceBrokerRecord",
        "RemoveDelegationTokenRecord",
        "UnfenceBrokerRecord",
        "UnregisterControllerRecord",
        "ZkMigrationStateRecord",
    }, "types that do not occur here"


def test_snapshots_make_the_view_that_the_log_makes(written: Written) -> None:
    log = written.log.read_bytes()
    assert written.snapshots
    for path in written.snapshots:
        end_offset = int(path.stem.partition("-")[0])
        by_log, by_snapshot = image_of(log, until=end_offset), image_of(path.read_bytes())
        assert comparable(by_snapshot.view) == comparable(by_log.view)
        assert by_snapshot.next_producer_id == by_log.next_producer_id
        for kept in ("quotas", "scram_users", "access_control_entries", "delegation_tokens"):
            assert getattr(by_snapshot.kept, kept) == getattr(by_log.kept, kept)


def test_the_log_makes_the_view_that_an_observer_saw(observed: Observed) -> None:
    view = image_of(observed.written.log.read_bytes(), until=observed.offset + 1).view
    assert comparable(view) == comparable(observed.view)
    assert view.topics.keys() == {"plain", "short-lived", "both", "theirs", "led"}
    assert view.has_acls
    assert view.client_metrics_configs == {"watch": {"interval.ms": "60000"}}
    assert view.registrations[KAFKA].endpoints["PLAINTEXT"].security_protocol == "PLAINTEXT"
    assert view.features["kraft.version"] == view.features["group.version"] == 1


def test_a_log_of_before_directories_has_partitions_on_the_way_to_them(upgraded: Written) -> None:
    view = image_of(upgraded.log.read_bytes()).view
    assert view.features["metadata.version"] == 21
    assert "kraft.version" not in view.features
    (directory,) = view.registrations[KAFKA].directories
    assert view.topics["after"].partitions[0].directories == (directory,)
    assert view.topics["before"].configs == {"retention.ms": "6019"}
    assert [one.offline for one in view.topics["before"].partitions] == [(), ()]


# --- Kafka's dump tool ---


def dumped(paths: Sequence[pathlib.Path]) -> list[list[Any]]:
    """What Kafka's tool reads: for each file (name, version or None, fields) of each record."""
    arguments = ("--cluster-metadata-decoder", "--files", ",".join(map(str, paths)))
    text = kafka_tool("org.apache.kafka.tools.DumpLogSegments", *arguments).stdout
    files: list[list[Any]] = []
    for line in text.splitlines():
        if line.startswith("Dumping "):
            files.append([])
        elif line.startswith("| offset"):
            content = line.partition("headerKeys: [] ")[2]
            if content.startswith("payload: "):
                told = json.loads(content.removeprefix("payload: "))
                files[-1].append((told["type"], told["version"], told["data"]))
            else:
                name, _, fields = content.partition(" ")
                files[-1].append((name.rstrip(":"), None, json.loads(fields)))
    return files


CONTROL_NAMES = {
    "LeaderChangeMessage": "LeaderChange",
    "SnapshotHeaderRecord": "SnapshotHeader",
    "SnapshotFooterRecord": "SnapshotFooter",
    "KRaftVersionRecord": "KRaftVersion",
    "VotersRecord": "KRaftVoters",
}


def check_fields(ours: Any, theirs: dict[str, Any], version: int) -> None:
    """Theirs lack only tagged fields that have their default."""
    left = dict(theirs)
    for spec in fields_of(type(ours)):
        if not spec.exists_in(version):
            continue
        name = "".join(part.capitalize() for part in spec.name.split("_"))
        name = (name[0].lower() + name[1:]).replace("kraft", "kRaft")
        value = getattr(ours, spec.name)
        if name not in left:
            assert spec.is_tagged_in(version), name
            assert value == spec.make_default(), name
        else:
            check_value(value, left.pop(name), spec.type, version)
    assert left == {}


def check_value(ours: Any, theirs: Any, wire_type: Any, version: int) -> None:
    if ours is None:
        assert theirs is None
    elif isinstance(wire_type, Array):
        for one, other in zip(ours, theirs, strict=True):
            check_value(one, other, wire_type.item, version)
    elif not isinstance(wire_type, Primitive):
        check_fields(ours, theirs, version)
    elif wire_type is UUID:
        assert uuid_to_text(ours) == theirs
    elif wire_type is BYTES:
        assert base64.b64encode(ours).decode() == theirs
    else:
        assert ours == theirs


def check_records(records: Sequence[tuple[Any, int]], told: Sequence[Any]) -> None:
    for (record, version), (name, their_version, fields) in zip(records, told, strict=True):
        if isinstance(record, ControlRecord):
            assert CONTROL_NAMES[type(record).__name__] == name
        else:
            assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(record).__name__).upper() == name
            assert version == their_version
        check_fields(record, fields, version)


def test_kafkas_tool_reads_in_the_log_what_we_read(written: Written) -> None:
    paths = [written.log, *written.snapshots]
    for path, told in zip(paths, dumped(paths), strict=True):
        records = []
        for header, batch in batches_of(path.read_bytes()):
            for record, stored in zip(
                records_of_batch(batch, header), iter_records(batch, header), strict=True
            ):
                of_record = 0 if header.is_control else frame_of(stored.value or b"").version
                records.append((record, of_record))
        check_records(records, told)


def test_kafkas_tool_reads_every_record_in_every_version_that_we_write(tmp_path: pathlib.Path) -> None:
    records = [
        (Samples((cls.__name__, version, number)).message(cls, version), version)
        for cls in metadata_records.RECORDS.values()
        for version in cls.versions
        for number in range(3)
    ]
    stored = [
        Record(offset, 1, None, encode_metadata_record(record, version))
        for offset, (record, version) in enumerate(records)
    ]
    log = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(bytes(build_batch(stored, leader_epoch=1)))
    check_records(records, dumped([log])[0])
