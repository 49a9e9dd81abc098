"""A member of a group by pykafka's balanced consumer, which shares partitions through ZooKeeper.

    python pykafka_member.py ZOOKEEPER GROUP TOPIC

Prints the value of each record, and leaves the group at SIGTERM.
"""

import signal
import sys

from pykafka import KafkaClient
from pykafka.common import OffsetType


def main(zookeeper: str, group: str, topic: str) -> None:
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
    # It asks ZooKeeper for the brokers as well.
    client = KafkaClient(zookeeper_hosts=zookeeper)
    consumer = client.topics[topic].get_balanced_consumer(
        group,
        zookeeper_connect=zookeeper,
        auto_commit_enable=True,
        auto_commit_interval_ms=100,
        auto_offset_reset=OffsetType.EARLIEST,
        consumer_timeout_ms=200,
        fetch_wait_max_ms=100,
        rebalance_max_retries=20,
        rebalance_backoff_ms=200,
    )
    while not ends:
        record = consumer.consume()
        if record is not None:
            print(record.value.decode(), flush=True)
    consumer.stop()


main(*sys.argv[1:])
