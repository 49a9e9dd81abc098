"""A member of a group: sharing, taking over, commits, rebalances, in both protocols."""

import contextlib
import itertools
import time

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

import odradek
from odradek.client.admin.groups import describe_groups, list_groups
from odradek.client.admin.topics import add_partitions
from odradek.client.classic_member import METADATA_MS
from odradek.client.client_error import ClientError
from odradek.client.cluster import coordinator_of
from odradek.client.group_member import GroupMember
from odradek.client.group_offsets import GroupHasMembers, committed
from odradek.client.member_settings import MemberSettings
from odradek.client.range_assignor import Subscriber, assign_range
from odradek.client.settings import ClientSettings
from odradek.coordinator.groups.assignors import AssignedMember, AssignmentSpec
from odradek.coordinator.groups.assignors import assign_range as by_the_broker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.client.proxy import CUT
from tests.client.topics import ask, create_topic, produce

NUMBERS = itertools.count()
DEADLINE_S = 30
SESSION_MS = 1000
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def broker():
    """Sessions are short, and heartbeats of the consumer protocol quick."""
    options = {
        "group.min.session.timeout.ms": SESSION_MS,
        "group.consumer.min.session.timeout.ms": SESSION_MS,
        "group.consumer.session.timeout.ms": SESSION_MS,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.assignment.interval.ms": 0,
        "group.consumer.assignment.interval.ms": 0,
    }
    with odradek.Broker(options=options) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


class Tracked:
    """A member that remembers what it was told."""

    def __init__(self, bootstrap, group, topics, protocol, **options):
        if protocol == "classic":
            options.setdefault("heartbeat_interval_ms", 50)
        self.revoked, self.lost = [], []
        self.committing = {}
        self.member = GroupMember(
            ClientSettings(bootstrap, retry_ms=1, patience_ms=20_000),
            group,
            topics,
            MemberSettings(protocol=protocol, **options),
            revoked=self.give_up,
            lost=self.lost.append,
        )

    def give_up(self, partitions):
        self.revoked.append(partitions)
        wanted = {key: at for key, at in self.committing.items() if key in partitions}
        if wanted:
            self.member.commit(wanted)

    def poll(self, later_ms=0):
        self.member.poll(now_ms() + later_ms, 0.02)

    @property
    def partitions(self):
        return sorted(number for _, number in self.member.assigned)


def now_ms():
    return int(time.monotonic() * 1000)


def poll_until(condition, *members):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [one.partitions for one in members]
        for one in members:
            one.poll()


@pytest.fixture
def group():
    return f"group-{next(NUMBERS)}"


@pytest.fixture
def topic(cluster):
    return create_topic(cluster, 4, f"members-{next(NUMBERS)}")


@pytest.fixture
def join(broker, group, topic):
    """Makes members of the group, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def joined(protocol, bootstrap=broker.bootstrap_servers, **options):
            one = Tracked(bootstrap, group, [topic], protocol, **options)
            stack.callback(one.member.close)
            return one

        yield joined


def has(one, number):
    return lambda: len(one.partitions) == number and one.member.is_settled


def shared(*members):
    """All partitions, each with one member, and each member with as many as the others."""
    owned = sorted(number for one in members for number in one.partitions)
    return owned == [0, 1, 2, 3] and {len(one.partitions) for one in members} == {4 // len(members)}


def remove(cluster, group, protocol):
    """Somebody ends the membership of the only member, which does not know."""
    (listed,) = [one for one in list_groups(cluster) if one.group == group]
    ((described,), _) = describe_groups(cluster, [listed])
    (one,) = described.members
    request = LeaveGroupRequest(
        group_id=group, member_id="", members=[MemberIdentity(member_id=one.member_id)]
    )
    if protocol == "consumer":
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=one.member_id, member_epoch=-1)
    ask(cluster, coordinator_of("group", group), request)


# Partitions -------------------------------------------------------------------------------------------


def test_two_share_and_when_one_leaves_the_other_takes_over(join, protocol):
    first, second = join(protocol), join(protocol)
    poll_until(has(first, 4), first)
    poll_until(lambda: shared(first, second), first, second)
    gone = frozenset().union(*first.revoked)
    assert gone
    assert not first.lost
    second.member.close()
    poll_until(lambda: shared(first), first)


def test_who_gives_no_sign_of_life_is_left_behind(join, protocol, cluster, group, topic):
    options = {"session_timeout_ms": SESSION_MS} if protocol == "classic" else {}
    silent, other = join(protocol, **options), join(protocol, **options)
    poll_until(lambda: shared(silent, other), silent, other)
    had = silent.member.assigned
    poll_until(lambda: shared(other), other)
    with pytest.raises(GroupHasMembers) as caught:
        silent.member.commit({(topic, 0): 1})
    assert caught.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert committed(cluster, group, None, is_stable=True) == {}
    silent.poll()
    assert silent.lost == [had]
    poll_until(lambda: shared(silent, other), silent, other)


def test_partitions_that_are_given_up_are_committed_before(join, protocol, cluster, group, topic):
    first, second = join(protocol), join(protocol)
    first.committing = {(topic, number): number + 5 for number in range(4)}
    poll_until(has(first, 4), first)
    poll_until(lambda: shared(first, second), first, second)
    gone = frozenset().union(*first.revoked)
    assert second.member.assigned <= gone
    found = committed(cluster, group, None, is_stable=True)
    assert found == {key: (first.committing[key], "") for key in gone}
    starts = second.member.positions(second.member.assigned, True)
    assert starts == {key: first.committing[key] for key in second.member.assigned}


def test_one_that_was_removed_loses_what_it_had_and_joins_again(join, protocol, cluster, group):
    one = join(protocol)
    poll_until(has(one, 4), one)
    had = one.member.assigned
    remove(cluster, group, protocol)
    poll_until(lambda: one.lost, one)
    assert one.lost == [had]
    poll_until(has(one, 4), one)
    assert one.revoked == []


def test_a_commit_of_one_that_was_removed_is_refused_and_it_joins_again(
    join, protocol, cluster, group, topic
):
    one = join(protocol, **({"heartbeat_interval_ms": 20_000} if protocol == "classic" else {}))
    poll_until(has(one, 4), one)
    one.member.commit({(topic, 1): 3})
    remove(cluster, group, protocol)
    with pytest.raises(GroupHasMembers, match=f"group {group} has gone on without this member"):
        one.member.commit({(topic, 1): 4})
    assert committed(cluster, group, None, is_stable=True) == {(topic, 1): (3, "")}
    poll_until(lambda: one.lost, one)
    poll_until(has(one, 4), one)
    one.member.commit({(topic, 1): 4})
    assert committed(cluster, group, None, is_stable=True) == {(topic, 1): (4, "")}


def test_a_commit_finds_the_epoch_that_the_broker_has_raised(join, group, cluster, topic):
    """The new member raises the epoch of the group, and the first one learns of its own with a heartbeat."""
    first, second = join("consumer"), join("consumer")
    poll_until(has(first, 4), first)
    poll_until(lambda: first.revoked, first, second)
    for offset in range(1, 6):
        first.member.commit(dict.fromkeys(first.member.assigned, offset))
        first.poll()
        second.poll()
    found = committed(cluster, group, None, is_stable=True)
    assert {key: found[key] for key in first.member.assigned} == dict.fromkeys(first.member.assigned, (5, ""))


def test_new_partitions_are_taken_in(join, protocol, cluster, topic):
    one = join(protocol)
    poll_until(has(one, 4), one)
    add_partitions(cluster, topic, 6)
    one.poll(later_ms=METADATA_MS)
    poll_until(has(one, 6), one)


def test_a_static_member_finds_its_partitions_again(join, protocol, broker, group, topic):
    options = {"session_timeout_ms": 30_000} if protocol == "classic" else {}
    first, second = (join(protocol, instance_id=f"{group}-{number}", **options) for number in range(2))
    poll_until(lambda: shared(first, second), first, second)
    had, given_up = second.member.assigned, len(first.revoked)
    second.member.close()
    again = join(protocol, instance_id=f"{group}-1", **options)
    poll_until(lambda: again.member.assigned == had, first, again)
    assert len(first.revoked) == given_up, "nobody else has noticed"


def test_two_of_one_instance_are_told(join, protocol, group):
    options = {"session_timeout_ms": 30_000} if protocol == "classic" else {}
    first = join(protocol, instance_id="i", **options)
    poll_until(has(first, 4), first)
    second = join(protocol, instance_id="i", **options)
    with pytest.raises(ClientError, match=r"another member of group .* as group\.instance\.id i"):
        poll_until(lambda: False, first, second)


def test_a_lost_connection_and_a_coordinator_that_moves_are_no_end(join, protocol, proxy):
    heartbeat = HeartbeatRequest if protocol == "classic" else ConsumerGroupHeartbeatRequest

    def not_here(answer):
        answer.error_code = ErrorCode.NOT_COORDINATOR
        return answer

    one = join(protocol, bootstrap=f"127.0.0.1:{proxy.port}")
    if protocol == "classic":
        proxy.change_once(JoinGroupRequest, lambda answer: CUT)
    poll_until(has(one, 4), one)
    for change in (lambda answer: CUT, not_here):
        proxy.change_once(heartbeat, change)
        before = proxy.asked[heartbeat]
        poll_until(lambda before=before: proxy.asked[heartbeat] >= before + 3, one)
        poll_until(has(one, 4), one)
    assert one.lost == []


def test_a_member_leaves_while_it_waits_for_the_others(join, cluster, group):
    """Its join is not answered before the first one joins again."""
    first, second = join("classic"), join("classic")
    poll_until(has(first, 4), first)
    for _ in range(5):
        second.poll()
    assert second.partitions == []
    second.member.close()
    first.member.close()
    ((described,), _) = describe_groups(cluster, [one for one in list_groups(cluster) if one.group == group])
    assert (described.state, described.members) == ("Empty", [])


# With others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False], ids=["we lead", "they lead"])
def test_kafka_python_shares_with_us(join, broker, group, topic, is_first):
    ours = join("classic")
    if is_first:
        poll_until(has(ours, 4), ours)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=10_000,
        heartbeat_interval_ms=100,
    )
    consumer.partitions_for_topic(topic)  # A leader that has not heard of the topic assigns nothing.

    def owned():
        consumer.poll(timeout_ms=20)
        return {one.partition for one in consumer.assignment()}

    def split():
        theirs = owned()
        return len(theirs) == 2 and sorted([*theirs, *ours.partitions]) == [0, 1, 2, 3]

    with contextlib.closing(consumer):
        if not is_first:
            poll_until(lambda: len(owned()) == 4)
        poll_until(split, ours)
    poll_until(has(ours, 4), ours)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_librdkafka_shares_with_us(join, broker, group, topic, protocol):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    if protocol == "classic":
        settings |= {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 100}
    ours = join(protocol)
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def split():
        consumer.poll(0.02)
        theirs = [one.partition for one in consumer.assignment()]
        return len(theirs) == 2 and sorted([*theirs, *ours.partitions]) == [0, 1, 2, 3]

    with contextlib.closing(consumer):
        poll_until(split, ours)
    poll_until(has(ours, 4), ours)


def test_a_group_that_does_not_assign_by_range_is_refused(join, broker, group, topic):
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "partition.assignment.strategy": "roundrobin",
    }
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])

        def has_joined():
            consumer.poll(0.02)
            return consumer.assignment()

        poll_until(has_joined)
        ours = join("classic")
        with pytest.raises(ClientError, match="has members that do not assign by range"):
            poll_until(lambda: False, ours)


# Where it begins --------------------------------------------------------------------------------------


def test_without_a_commit_it_begins_as_the_option_says(join, cluster, topic):
    produce(cluster, topic, 0, [b"a", b"b"])
    places = [(topic, 0), (topic, 1)]

    def begins(reset):
        return join("classic", auto_offset_reset=reset).member.positions(places, True)

    assert begins("earliest") == {(topic, 0): 0, (topic, 1): 0}
    assert begins("latest") == {(topic, 0): 2, (topic, 1): 0}
    with pytest.raises(
        ClientError, match=r"has no commit for topic .*, partition 0, and auto\.offset\.reset"
    ):
        begins("none")


def test_options_have_the_names_and_the_defaults_of_java():
    assert MemberSettings.from_options({}) == MemberSettings("classic", 45_000, 3_000, 300_000, "latest")
    given = {
        "session.timeout.ms": "9000",
        "heartbeat.interval.ms": "100",
        "max.poll.interval.ms": "60000",
        "auto.offset.reset": "Earliest",
        "group.instance.id": "i",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "something.else": "x",
    }
    assert MemberSettings.from_options(given) == MemberSettings("classic", 9000, 100, 60_000, "earliest", "i")
    given = {"group.protocol": "CONSUMER", "group.remote.assignor": "range"}
    assert MemberSettings.from_options(given).remote_assignor == "range"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"session.timeout.ms": "0"}, "session.timeout.ms is '0'"),
        ({"heartbeat.interval.ms": "1m"}, "heartbeat.interval.ms is '1m'"),
        ({"heartbeat.interval.ms": "45000"}, "smaller than session.timeout.ms"),
        ({"auto.offset.reset": "by_duration:PT1H"}, "latest, earliest, none"),
        ({"group.protocol": "streams"}, "classic, consumer"),
        ({"group.remote.assignor": "range"}, "for group.protocol=consumer alone"),
        ({"partition.assignment.strategy": "range,cooperative-sticky"}, "by range alone"),
        ({"group.protocol": "consumer", "session.timeout.ms": "9000"}, "session.timeout.ms is not for"),
        ({"group.protocol": "consumer", "heartbeat.interval.ms": "9"}, "heartbeat.interval.ms is not for"),
        ({"group.protocol": "consumer", "partition.assignment.strategy": "range"}, "strategy is not for"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options, why):
    with pytest.raises(ClientError) as caught:
        MemberSettings.from_options(options)
    assert why in str(caught.value)


# The strategy -----------------------------------------------------------------------------------------

MEMBERS = st.dictionaries(
    st.text("abc\ue000\U00010000", min_size=1, max_size=3),
    st.tuples(st.booleans(), st.sets(st.sampled_from("xyz"))),
    min_size=1,
    max_size=5,
)


@given(members=MEMBERS, counts=st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)))
def test_range_is_that_of_the_broker(members, counts):
    """Which a differential test holds against Kafka's."""
    subscribers = [
        Subscriber(name, f"i{name}" if is_static else None, topics)
        for name, (is_static, topics) in members.items()
    ]
    found = {
        name: {topic: frozenset(numbers) for topic, numbers in of.items()}
        for name, of in assign_range(subscribers, counts).items()
    }
    spec = AssignmentSpec(
        {
            one.member_id: AssignedMember(
                frozenset(topic.encode() for topic in one.topics), {}, one.instance_id
            )
            for one in subscribers
        },
        {topic.encode(): count for topic, count in counts.items()},
    )
    oracle = {
        name: {topic.decode(): numbers for topic, numbers in of.items()}
        for name, of in by_the_broker(spec).items()
    }
    assert found == oracle
