"""What samsa does with Kafka 0.7 that it finds through ZooKeeper; a Python 2.7 runs it.

python samsa_member.py read ZOOKEEPER GROUP TOPIC       prints each payload, leaves the group at SIGTERM
python samsa_member.py write ZOOKEEPER TOPIC PAYLOAD... to partitions by chance
"""

import os
import signal
import sys

from kazoo.client import KazooClient
from samsa.cluster import Cluster

TIMEOUT_S = 0.2


def read(zookeeper, group, topic):
    ends = []
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(number))
    consumer = Cluster(zookeeper).topics[topic].subscribe(group, backoff_increment=0.1, rebalance_retries=8)
    while not ends:
        payload = consumer.next_message(timeout=TIMEOUT_S)
        if payload is not None:
            sys.stdout.write(payload + "\n")
            sys.stdout.flush()
        consumer.commit_offsets()
    consumer.stop_partitions()


def write(zookeeper, topic, *payloads):
    cluster = Cluster(zookeeper)
    for payload in payloads:
        cluster.topics[topic].publish(payload)
    for broker in cluster.brokers.values():
        broker.client.disconnect()


def main(action, address, *arguments):
    zookeeper = KazooClient(address, timeout=2.0)
    zookeeper.start()
    globals()[action](zookeeper, *arguments)
    zookeeper.stop()


main(*sys.argv[1:])
sys.stdout.flush()
# A thread of samsa never ends, and Python 2.7 may crash when it takes the modules away from below it.
os._exit(0)
