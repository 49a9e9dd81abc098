"""The guide to Spark, docs/spark.md: its Python is run from the first block to the last."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import trustme

from compat_tests.clients import Message
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.secured import PASSWORD, secured_odradek
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.spark.client_options import settings_of
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tools import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compat_tests.brokers import TestBroker


GUIDE = environment.CHECKOUT / "docs" / "spark.md"
ADDRESS = "127.0.0.1:9092"
OTHER_ADDRESS = "127.0.0.1:9192"
SECURED_ADDRESS = "broker.example:9094"
AUTHORITY = "/etc/kafka/ca.pem"
DATA = "/data"
DATA_OF_BROKER = "/var/lib/kafka"
COUNT = 20


@pytest.fixture
def secured_address(tmp_path: pathlib.Path) -> Iterator[str]:
    """A broker with SASL_SSL, whose authority is in `ca.pem`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    options = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "broker.pem")}
    with secured_odradek(tmp_path / "secured", options, listener="SASL_SSL") as broker:
        yield f"127.0.0.1:{broker.port}"


def test_the_code_of_the_guide_runs(
    spark: SparkSession,
    broker: TestBroker,
    target: str,
    secured_address: str,
    client: KafkaPythonClient,
    tmp_path: pathlib.Path,
) -> None:
    client.create_topic("orders", 2)
    client.create_topic("copies", 2)
    client.create_topic("orders-again", 2)
    client.create_topic("users", 1)
    client.produce("users", [Message(b"%d" % n, b"user-%d" % (n % 3)) for n in range(COUNT)])
    client.produce("orders", [Message(b"%d" % n, b"k", partition=n % 2) for n in range(COUNT)])
    client.commit("billing", "orders", {0: 3, 1: 4})
    names = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint"), "password": PASSWORD}
    import odradek.spark

    odradek.spark.register(spark)  # as from an install, of which the guide begins
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        block = block.replace(ADDRESS, client.bootstrap).replace(OTHER_ADDRESS, target)
        block = block.replace(SECURED_ADDRESS, secured_address)
        block = block.replace(AUTHORITY, str(tmp_path / "ca.pem"))
        block = block.replace(DATA, str(tmp_path))
        block = block.replace(DATA_OF_BROKER, str(broker.data_dir))
        exec(compile(block, str(GUIDE), "exec"), names)
    options = names["secured"]
    with Cluster(settings_of(options)) as admin:
        topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        admin.ask(ANY_NODE, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    names["copy"].write.format("odradek").options(**options, topic="orders").mode("append").save()
    assert names["secured_orders"].count() == COUNT
    found = readers.values_of(client.bootstrap, [("copies", 0), ("copies", 1)])
    copies = sorted(int(value) for there in found.values() for value in there)
    # Once at least, once with an id that is used twice, once by the stream.
    assert copies == sorted([*range(COUNT)] * 3)
