"""DeleteRecords asked of a whole broker: killed right after the answer, and with a client that reads."""

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

import odradek

ZERO = TopicPartition("t", 0)


def fill(broker: odradek.Broker, values: range) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for value in values:
        producer.send("t", b"%d" % value, partition=0)
    producer.flush()
    producer.close()


def delete_before(broker: odradek.Broker, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.delete_records({ZERO: offset})
    admin.close()


def consumer_of(broker: odradek.Broker, reset: str = "earliest") -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset=reset, consumer_timeout_ms=10_000
    )
    consumer.assign([ZERO])
    return consumer


def test_what_was_answered_survives_a_kill():
    with odradek.Broker(process=True) as broker:
        fill(broker, range(100))
        delete_before(broker, 70)
        broker.kill()
        broker.restart()
        consumer = consumer_of(broker)
        assert (consumer.beginning_offsets([ZERO]), consumer.end_offsets([ZERO])) == ({ZERO: 70}, {ZERO: 100})
        assert next(consumer).value == b"70"
        consumer.close()


def test_a_client_whose_position_is_gone_begins_where_it_is_told_to():
    with odradek.Broker() as broker:
        fill(broker, range(100))
        delete_before(broker, 70)
        for reset, first in (("earliest", 70), ("latest", 100)):
            consumer = consumer_of(broker, reset)
            consumer.seek(ZERO, 10)
            if reset == "latest":
                consumer.poll(0)
                while consumer.position(ZERO) == 10:
                    consumer.poll(50)
                fill(broker, range(100, 101))
            assert next(consumer).offset == first
            consumer.close()
