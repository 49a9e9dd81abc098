"""A snapshot of the metadata log: it makes the same image again, in the order and versions of Kafka's."""

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    KRaftVersionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)
from tests.coordinator.memory_metadata_log import through_bytes
from tests.coordinator.metadata_histories import History, acl_record
from tests.tiers import NIGHTLY, seeds

NEWEST = 33
KRAFT_1 = KRaftVersionRecord(version=0, kraft_version=1)
CONTROLLER = RegisterControllerRecord(
    controller_id=3000,
    incarnation_id=b"i" * 16,
    end_points=[ControllerEndpoint(name="C", host="h", port=9093, security_protocol=0)],
)
TOKEN = DelegationTokenRecord(
    owner="User:u", requester="User:v", renewers=["User:w"], issue_timestamp=1, max_timestamp=9, token_id="id"
)


def levels(metadata_version=NEWEST, elr=1):
    return [
        FeatureLevelRecord(name="metadata.version", feature_level=metadata_version),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr),
    ]


def image_of(*records):
    image = MetadataImage(1, "c")
    for record in records:
        image.replay(record)
    image.end_batch(len(records))
    image.publish()
    return image


def snapshot_of(image, metadata_version=NEWEST):
    """The records, as a file has them."""
    return [through_bytes(record, metadata_version) for record in snapshot_records(image.state)]


def facts(image):
    """All that is to be the same, whatever way the image was made."""
    _, view, next_producer_id, controllers = image.state
    acls = {} if view.acls is None else dict(view.acls.by_id)
    return replace(view, version=0, features_epoch=0, acls=None), acls, next_producer_id, controllers


def assert_snapshot_is_the_same(image, metadata_version=NEWEST):
    again = image_of(KRAFT_1, *snapshot_of(image, metadata_version))
    assert facts(again) == facts(image)


@pytest.mark.parametrize("seed", seeds(300 if NIGHTLY else 25, fast=5))
def test_a_snapshot_of_a_history_makes_the_same_image(seed):
    history = History(seed)
    image = image_of(KRAFT_1)
    for number in range(100):
        for record in history.batch():
            image.replay(record)
        if number % 10 == 9:
            for record in (*levels(), acl_record(number), TOKEN, CONTROLLER):
                image.replay(record)
            image.end_batch(number)
            image.publish()
            assert_snapshot_is_the_same(image)


# Values of any kind

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
UUID = st.binary(min_size=16, max_size=16)
BYTES = st.binary(max_size=4)
BROKER_ID = st.integers(0, 2**31 - 1)
TIME = st.integers(0, 2**63 - 1)
NAMES = st.lists(BROKER_ID, max_size=3, unique=True)

CONFIG = st.one_of(
    st.builds(
        ConfigRecord, resource_type=st.sampled_from([16, 32]), resource_name=TEXT, name=TEXT, value=st.text()
    ),
    st.builds(
        ConfigRecord,
        resource_type=st.just(4),
        resource_name=BROKER_ID.map(str) | st.just(""),
        name=TEXT,
        value=TEXT,
    ),
)
QUOTA = st.builds(
    ClientQuotaRecord,
    entity=st.lists(
        st.builds(
            EntityData, entity_type=st.sampled_from(["user", "client-id"]), entity_name=st.none() | TEXT
        ),
        min_size=1,
        max_size=2,
        unique_by=lambda one: one.entity_type,
    ),
    key=TEXT,
    value=st.floats(allow_nan=False),
    remove=st.just(False),
)
USER = st.builds(
    UserScramCredentialRecord,
    name=TEXT,
    mechanism=st.sampled_from([1, 2, 9]),
    salt=BYTES,
    stored_key=BYTES,
    server_key=BYTES,
    iterations=st.integers(0, 2**31 - 1),
)
TOKENS = st.builds(
    DelegationTokenRecord,
    owner=TEXT,
    requester=TEXT,
    renewers=st.lists(TEXT, max_size=2),
    issue_timestamp=TIME,
    max_timestamp=TIME,
    expiration_timestamp=TIME,
    token_id=TEXT,
)
ACL = st.builds(
    AccessControlEntryRecord,
    id=UUID,
    resource_type=st.integers(2, 100),
    resource_name=TEXT,
    pattern_type=st.sampled_from([3, 4]),
    principal=TEXT,
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/8"]),
    operation=st.integers(2, 100),
    permission_type=st.sampled_from([2, 3]),
)
BROKER = st.builds(
    RegisterBrokerRecord,
    broker_id=BROKER_ID,
    incarnation_id=UUID,
    broker_epoch=TIME,
    end_points=st.lists(
        st.builds(
            BrokerEndpoint,
            name=TEXT,
            host=st.text(max_size=5),
            port=st.integers(0, 65535),
            security_protocol=st.integers(0, 3),
        ),
        unique_by=lambda one: one.name,
        max_size=3,
    ),
    features=st.lists(
        st.builds(
            BrokerFeature,
            name=TEXT,
            min_supported_version=st.integers(0, 5),
            max_supported_version=st.integers(5, 9),
        ),
        unique_by=lambda one: one.name,
        max_size=3,
    ),
    rack=st.none() | st.text(),
    fenced=st.booleans(),
    in_controlled_shutdown=st.booleans(),
    log_dirs=st.lists(UUID, max_size=3, unique=True),
    cordoned_log_dirs=st.none() | st.lists(UUID, max_size=3, unique=True),
)


@st.composite
def topics(draw):
    topic = TopicRecord(name=draw(TEXT), topic_id=draw(UUID))
    records = [topic]
    for index in range(draw(st.integers(1, 3))):
        replicas = draw(st.lists(BROKER_ID, min_size=1, max_size=3, unique=True))
        count = len(replicas)
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=replicas,
                isr=draw(NAMES),
                removing_replicas=draw(NAMES),
                adding_replicas=draw(NAMES),
                leader=draw(st.integers(-1, 9)),
                leader_recovery_state=draw(st.integers(0, 1)),
                leader_epoch=draw(st.integers(0, 9)),
                partition_epoch=draw(st.integers(0, 9)),
                directories=draw(st.lists(UUID, min_size=count, max_size=count)),
                eligible_leader_replicas=draw(st.none() | NAMES),
                last_known_elr=draw(st.none() | NAMES),
            )
        )
    settings = st.builds(
        ConfigRecord,
        resource_type=st.just(2),
        resource_name=st.just(topic.name),
        name=TEXT,
        value=TEXT,
    )
    return [*records, *draw(st.lists(settings, max_size=2))]


@given(
    st.lists(st.one_of(CONFIG, QUOTA, USER, TOKENS, BROKER), max_size=15),
    st.lists(topics(), max_size=3, unique_by=(lambda one: one[0].name, lambda one: one[0].topic_id)),
    st.lists(
        ACL,
        max_size=3,
        unique_by=(lambda one: one.id, lambda one: str(replace(one, id=b""))),
    ),
    TIME,
)
def test_a_snapshot_keeps_every_value(records, new_topics, acls, next_producer_id):
    others = [record for one in new_topics for record in one]
    ids = ProducerIdsRecord(broker_id=1, next_producer_id=next_producer_id)
    assert_snapshot_is_the_same(image_of(KRAFT_1, *levels(), *records, *others, *acls, ids))


# Order, and what a level does not have


def full_image(*others):
    return image_of(
        UserScramCredentialRecord(name="u", mechanism=1, iterations=4096),
        TOKEN,
        acl_record(1),
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        ClientQuotaRecord(entity=[EntityData(entity_type="user", entity_name="u")], key="a", value=1.0),
        TopicRecord(name="t", topic_id=b"t" * 16),
        PartitionRecord(
            partition_id=0,
            topic_id=b"t" * 16,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=2,
            partition_epoch=3,
            directories=[b"d" * 16] * 2,
            eligible_leader_replicas=[2],
        ),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        CONTROLLER,
        RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=[b"d" * 16], cordoned_log_dirs=[]),
        FeatureLevelRecord(name="group.version", feature_level=1),
        *others,
        KRAFT_1,
    )


def test_the_order_is_that_of_kafkas_images():
    records = snapshot_of(full_image(*levels()))
    assert [kind for kind, _ in groupby(map(type, records))] == [
        FeatureLevelRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        UserScramCredentialRecord,
        DelegationTokenRecord,
    ]
    assert [one.name for one in records[:3]] == [
        "metadata.version",
        "group.version",
        "eligible.leader.replicas.version",
    ]
    (ids,) = [one for one in records if isinstance(one, ProducerIdsRecord)]
    assert (ids.broker_id, ids.broker_epoch, ids.next_producer_id) == (-1, -1, 1000)


def test_eligible_leaders_are_written_while_they_are_switched_on():
    for elr, expected in ((1, [2]), (0, None)):
        records = snapshot_of(full_image(*levels(elr=elr)))
        (partition,) = [one for one in records if isinstance(one, PartitionRecord)]
        assert partition.eligible_leader_replicas == expected


def test_an_old_level_leaves_out_what_it_does_not_have():
    records = snapshot_of(full_image(*levels(metadata_version=7, elr=0)), metadata_version=7)
    kinds = set(map(type, records))
    assert kinds.isdisjoint({RegisterControllerRecord, UserScramCredentialRecord, DelegationTokenRecord})
    (broker,) = [one for one in records if isinstance(one, RegisterBrokerRecord)]
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ([], None)
    (partition,) = [one for one in records if isinstance(one, PartitionRecord)]
    assert partition.directories == []


def test_a_controller_that_is_none_any_more_is_not_in_a_snapshot():
    image = full_image(*levels(), UnregisterControllerRecord(controller_id=3000))
    assert RegisterControllerRecord not in set(map(type, snapshot_of(image)))


def test_a_snapshot_is_of_its_moment_while_the_image_goes_on():
    image = full_image(*levels())
    taken = snapshot_records(image.state)
    first = next(taken)
    image.replay(ConfigRecord(resource_type=2, resource_name="t", name="a", value="2"))
    image.replay(ProducerIdsRecord(broker_id=1, next_producer_id=5000))
    image.end_batch(99)
    image.publish()
    assert facts(image_of(KRAFT_1, first, *taken)) == facts(full_image(*levels()))
    assert EndTransactionRecord not in map(type, snapshot_of(image))
