"""A broker that has warmed up imports nothing more, whatever a client does: no request waits for that."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import threading
import odradek
from odradek.server.background import warm_up
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec,
)

warming_up, stages = warm_up.warming_up, threading.Semaphore(0)

def watched(routes, parts):
    yield from warming_up(routes, parts)
    stages.release()

warm_up.warming_up = watched

def wait_for(futures):
    for future in futures.values():
        future.result(20)

with odradek.Broker() as broker:
    for _ in range(2):
        assert stages.acquire(timeout=20), "the broker does not get ready"
    before = {name for name in sys.modules if name.startswith("odradek.")}
    address = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    admin = AdminClient(address)
    wait_for(admin.create_topics([NewTopic("t", 1, config={"retention.ms": "10000000"})]))
    change = ConfigEntry("retention.ms", "20000000", incremental_operation=AlterConfigOpType.SET)
    wait_for(admin.incremental_alter_configs([ConfigResource("topic", "t", incremental_configs=[change])]))
    producer = Producer(address)
    producer.produce("t", b"value", b"key")
    assert producer.flush(20) == 0
    for protocol in ("classic", "consumer"):
        settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer(address | settings)
        consumer.subscribe(["t"])
        assert consumer.poll(20).value() == b"value"
        consumer.commit(asynchronous=False)
        transactional = Producer(address | {"transactional.id": protocol})
        transactional.init_transactions(20)
        transactional.begin_transaction()
        transactional.produce("t", b"copy")
        positions = consumer.position(consumer.assignment())
        transactional.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        transactional.commit_transaction(20)
        consumer.close()
    listed = admin.list_consumer_groups().result(20).valid
    assert {group.group_id for group in listed} == {"classic", "consumer"}
    wait_for(admin.describe_consumer_groups(["classic", "consumer"]))
    wait_for(admin.describe_topics(TopicCollection(["t"])))
    wait_for(admin.describe_configs([ConfigResource("topic", "t")]))
    wait_for(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}))
    wait_for(admin.delete_records([TopicPartition("t", 0, 1)]))
    wait_for(admin.create_partitions([NewPartitions("t", 3)]))
    wait_for(admin.delete_consumer_groups(["classic"]))
    wait_for(admin.delete_topics(["t"]))
    print(*sorted({name for name in sys.modules if name.startswith("odradek.")} - before))
"""


def test_what_clients_do_finds_everything_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
