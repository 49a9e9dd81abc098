"""Configurations as Kafka ships them and its image has them in examples."""

import pathlib

from odradek.config.broker_config import load

KAFKAS_OWN_FILE = pathlib.Path(__file__).with_name("kafka-4.3-server.properties")
KAFKAS_OWN = KAFKAS_OWN_FILE.read_text()
"""Every setting, in its order, of the config/server.properties that Kafka 4.3 ships for a first start."""

# What the examples of Kafka's image give a node of one container (docker/examples, plaintext).
CONTAINER = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}


def from_text(tmp_path, text, **more):
    path = tmp_path / "server.properties"
    path.write_bytes(text.encode("latin-1"))
    return load(path, **more)
