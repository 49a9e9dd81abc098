"""Leaders that an administrator elects: the preferred one, and one that was not in sync."""

from __future__ import annotations

import re
from functools import partial

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.sharing import Members
from compat_tests.cluster.test_replication import batches_in, create, isr_of, partition, values_in
from compat_tests.quorum import KafkaMember, OdradekMember
from compat_tests.reference import kafka_tool
from odradek.embedding.kit_calls import call_at
from odradek.server.test_kit.kit import TestKitError

FENCED_SECONDS = 60
"""A session is 3 s; the bound is for a busy machine."""


def elect(bootstrap: str, kind: str, topic: str) -> str:
    """What Kafka's tool says."""
    return kafka_tool(
        "org.apache.kafka.tools.LeaderElectionCommand",
        "--bootstrap-server",
        bootstrap,
        "--election-type",
        kind,
        "--topic",
        topic,
        "--partition",
        "0",
    ).stdout


def leader_of(bootstrap: str, topic: str) -> int:
    found = partition(bootstrap, topic)
    return -1 if found is None else int(found.leader_id)


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for value in values:
        producer.send(topic, value, partition=0).get(DEADLINE_SECONDS)
    producer.close()


def test_the_preferred_leader_leads_again_after_its_restart(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    both = {odradek.node_id, kafka.node_id}
    topics = {"prefers-ours": (odradek, kafka), "prefers-kafka": (kafka, odradek)}
    for topic, (first, second) in topics.items():
        create(odradek.bootstrap_servers, topic, [first.node_id, second.node_id])
        wait_until(
            lambda topic=topic: isr_of(odradek.bootstrap_servers, topic) == both,  # type: ignore[misc]
            "both in sync",
            seconds=DEADLINE_SECONDS,
        )
    told = []
    for topic, (first, second) in topics.items():
        send(second.bootstrap_servers, topic, b"before")
        first.stop()
        wait_until(
            lambda topic=topic, second=second: (  # type: ignore[misc]
                leader_of(second.bootstrap_servers, topic) == second.node_id
            ),
            "the other one leads",
            seconds=FENCED_SECONDS,
        )
        first.start()
        wait_until(
            lambda topic=topic, second=second: isr_of(second.bootstrap_servers, topic) == both,  # type: ignore[misc]
            "both in sync again",
            seconds=FENCED_SECONDS,
        )
        told.append(elect(odradek.bootstrap_servers, "preferred", topic).replace(topic, "TOPIC"))
        wait_until(
            lambda topic=topic, first=first: (  # type: ignore[misc]
                leader_of(odradek.bootstrap_servers, topic) == first.node_id
            ),
            "the preferred one leads",
            seconds=DEADLINE_SECONDS,
        )
        send(second.bootstrap_servers, topic, b"after")
        assert values_in(second.bootstrap_servers, topic, 2) == [b"before", b"after"]
    assert told[0] == told[1]
    assert "Successfully completed leader election (PREFERRED) for partitions TOPIC-0" in told[0]


def test_a_fault_moves_the_leader_to_a_broker_of_kafka_and_back(
    cluster_of_members: Members, odradek: OdradekMember, kafka: KafkaMember
) -> None:
    topic, bootstrap = "moved-by-a-fault", odradek.bootstrap_servers
    both = {odradek.node_id, kafka.node_id}
    create(bootstrap, topic, [odradek.node_id, kafka.node_id])
    wait_until(lambda: isr_of(bootstrap, topic) == both, "both in sync", seconds=FENCED_SECONDS)
    call = partial(call_at, ("127.0.0.1", cluster_of_members.kit_port))
    sent: list[bytes] = []

    def write() -> None:
        sent.append(b"%d" % len(sent))
        send(bootstrap, topic, sent[-1])

    def has_moved_and_come_back() -> bool:
        """False: on a busy machine one of them was fenced in between."""
        write()
        try:
            fault = call("faults.add", {"leader_moved": True, "topic": topic, "partition": 0})
        except TestKitError:
            return False
        is_led_by_kafka = leader_of(bootstrap, topic) == kafka.node_id
        write()
        call("faults.end", {"id": fault})
        return is_led_by_kafka and leader_of(bootstrap, topic) == odradek.node_id

    wait_until(has_moved_and_come_back, "it has moved and come back", seconds=FENCED_SECONDS)
    found = partition(bootstrap, topic)
    assert found is not None
    assert found.replica_nodes == [odradek.node_id, kafka.node_id]
    write()
    assert values_in(bootstrap, topic, len(sent)) == sent


@pytest.mark.parametrize("how", ["tool", pytest.param("option", marks=pytest.mark.nightly)])
def test_a_node_that_is_elected_uncleanly_leads_and_the_former_leader_cuts_its_log(
    odradek: OdradekMember, other: OdradekMember, kafka: KafkaMember, how: str
) -> None:
    """The only member of the ISR is gone, with what was committed on it alone. With the topic's option the
    controllers elect by themselves."""
    topic = f"unclean-{how}"
    configs = {"unclean_leader_election_enable": "true"} if how == "option" else {}
    both = {odradek.node_id, other.node_id}
    create(
        kafka.bootstrap_servers, topic, [other.node_id, odradek.node_id], min_insync_replicas="1", **configs
    )
    wait_until(
        lambda: isr_of(kafka.bootstrap_servers, topic) == both, "both in sync", seconds=DEADLINE_SECONDS
    )
    bootstrap = ",".join(one.bootstrap_servers for one in (odradek, other, kafka))
    kept = [b"kept-%d" % number for number in range(10)]
    send(bootstrap, topic, *kept)
    odradek.stop()
    wait_until(
        lambda: isr_of(kafka.bootstrap_servers, topic) == {other.node_id},
        "one is in sync",
        seconds=FENCED_SECONDS,
    )
    send(f"{other.bootstrap_servers},{kafka.bootstrap_servers}", topic, b"lost-0", b"lost-1")
    told = len(odradek.log), len(other.log)
    other.kill()
    wait_until(
        lambda: leader_of(kafka.bootstrap_servers, topic) == -1, "nobody leads", seconds=FENCED_SECONDS
    )
    odradek.start()
    if how == "tool":
        assert leader_of(kafka.bootstrap_servers, topic) == -1
        assert "Successfully completed leader election (UNCLEAN)" in elect(
            odradek.bootstrap_servers, "unclean", topic
        )
    wait_until(
        lambda: leader_of(kafka.bootstrap_servers, topic) == odradek.node_id,
        "the one that was not in sync leads",
        seconds=FENCED_SECONDS,
    )
    after = [b"after-%d" % number for number in range(5)]
    send(f"{odradek.bootstrap_servers},{kafka.bootstrap_servers}", topic, *after)
    other.start()
    wait_until(
        lambda: isr_of(kafka.bootstrap_servers, topic) == both, "both in sync again", seconds=FENCED_SECONDS
    )
    assert values_in(bootstrap, topic, 15) == [*kept, *after]
    wait_until(
        lambda: batches_in(odradek, topic) == batches_in(other, topic),
        "both logs have the same batches",
        seconds=DEADLINE_SECONDS,
    )
    of_ours = re.findall(f"{topic}-0: elected uncleanly .*", odradek.log[told[0] :])
    assert len(of_ours) == 1, of_ours
    assert "from offset 10 on is lost" in of_ours[0]
    of_other = re.findall(f"{topic}-0: cut at 10.*", other.log[told[1] :])
    assert len(of_other) == 1, of_other
