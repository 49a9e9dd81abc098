"""Faults that hold a request, close its connection, or have a function of the test make its response."""

import http.client
import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from odradek.embedding.free_port import free_port
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch
from tests.raw_client import RawClient

CREATE, METADATA, PRODUCE = 5, 12, 9


@pytest.fixture
def broker():
    with odradek.Broker() as running:
        yield running


def creation(name):
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def question(name):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def topics_of(broker):
    return [one["topic"] for one in broker.call_kit("state.topics", {})]


def test_a_connection_is_closed_and_nothing_has_happened(broker):
    with broker.faults.add("CreateTopics", disconnect=True, times=1) as fault:
        with RawClient(broker.port) as client:
            client.send_request(creation("orders"), CREATE)
            assert client.read_to_end() == b""
        assert fault.fired == 1
        assert topics_of(broker) == []
        with RawClient(broker.port) as client:
            assert client.ask(creation("orders"), CREATE).topics[0].error_code == ErrorCode.NONE


def test_a_broker_is_down_for_its_clients_and_up_again(broker):
    with RawClient(broker.port) as before:
        before.ask(creation("orders"), CREATE)
        broker.faults.add(refuse_connection=True)
        broker.faults.add(disconnect=True)
        before.send_request(question("orders"), METADATA)
        assert before.read_to_end() == b""
        with pytest.raises((ConnectionError, EOFError)), RawClient(broker.port) as refused:
            refused.ask(question("orders"), METADATA)
    broker.faults.clear()
    with RawClient(broker.port) as after:
        assert after.ask(question("orders"), METADATA).topics[0].error_code == ErrorCode.NONE


def test_a_request_is_held_until_its_fault_is_released(broker):
    fault = broker.faults.add("CreateTopics", hold=True, times=1)
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.send_request(creation("orders"), CREATE)
        fault.wait(1)
        other.ask(creation("payments"), CREATE)
        assert topics_of(broker) == ["payments"]
        assert fault.release() == 1
        _, response = client.receive(CreateTopicsRequest, CREATE)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert topics_of(broker) == ["orders", "payments"]
        assert fault.release() == 0


def test_a_response_is_held_after_the_effect(broker):
    fault = broker.faults.add("CreateTopics", hold_response=True, times=1)
    with RawClient(broker.port) as client:
        client.send_request(creation("orders"), CREATE)
        client.send_request(question("orders"), METADATA, 2)
        fault.wait(1)
        broker.wait_for.records("orders", 0)
        assert topics_of(broker) == ["orders"]
        assert fault.release() == 1
        assert client.receive(CreateTopicsRequest, CREATE)[0] == 1
        assert client.receive(MetadataRequest, METADATA)[0] == 2


def test_the_records_of_a_request_that_is_held_are_its_own(broker):
    def produced(value):
        data = PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, value)]))
        topic = TopicProduceData(name="orders", partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])

    with RawClient(broker.port) as client:
        client.ask(creation("orders"), CREATE)
        fault = broker.faults.add("Produce", topic="orders", hold=True, times=1)
        broker.requests.record(with_records=True)
        for number in range(3):
            client.send_request(produced(b"%d" % number * 100), PRODUCE, number)
        fault.wait(1)
        fault.release()
        offsets = []
        for number in range(3):
            answered, response = client.receive(ProduceRequest, PRODUCE)
            assert answered == number
            offsets.append(response.responses[0].partition_responses[0].base_offset)
        assert offsets == [0, 1, 2]


@pytest.mark.parametrize("end", ["remove", "clear"])
def test_who_is_held_goes_on_when_the_fault_is_removed(broker, end):
    fault = broker.faults.add("CreateTopics", hold=True)
    with RawClient(broker.port) as client:
        client.send_request(creation("orders"), CREATE)
        fault.wait(1)
        if end == "remove":
            fault.remove()
        else:
            broker.faults.clear()
        assert client.receive(CreateTopicsRequest, CREATE)[1].topics[0].error_code == ErrorCode.NONE


def test_a_client_that_went_keeps_nobody_else(broker):
    fault = broker.faults.add("CreateTopics", hold=True)
    with RawClient(broker.port) as client:
        client.send_request(creation("orders"), CREATE)
        fault.wait(1)
    with RawClient(broker.port) as client:
        client.send_request(creation("payments"), CREATE)
        fault.wait(2)
        assert fault.release() in (1, 2), "the broker may not have seen yet that the first one went"
        assert client.receive(CreateTopicsRequest, CREATE)[1].topics[0].error_code == ErrorCode.NONE


def test_what_is_held_may_be_refused_afterwards(broker):
    fault = broker.faults.add("CreateTopics", hold=True, error="POLICY_VIOLATION", times=1)
    with RawClient(broker.port) as client:
        client.send_request(creation("orders"), CREATE)
        fault.wait(1)
        fault.release()
        assert client.receive(CreateTopicsRequest, CREATE)[1].topics[0].error_code == 44
    assert topics_of(broker) == []


def test_a_function_makes_the_response_or_leaves_it_to_the_broker(broker):
    def say_busy(request, context):
        if request.topics[0].name != "orders":
            return None
        assert context.client_id == "tests"
        return busy

    with RawClient(broker.port) as client:
        busy = client.ask(creation("elsewhere"), CREATE)
        busy.topics[0].name, busy.topics[0].error_code = "orders", ErrorCode.THROTTLING_QUOTA_EXCEEDED
        fault = broker.faults.add("CreateTopics", respond=say_busy)
        assert broker.faults.all()[0]["respond"] == "say_busy"
        assert client.ask(creation("payments"), CREATE).topics[0].error_code == ErrorCode.NONE
        refused = client.ask(creation("orders"), CREATE)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert fault.fired == 2
    assert topics_of(broker) == ["elsewhere", "payments"]


def test_a_function_changes_a_response_and_not_the_next_one(broker):
    def name_another_leader(response, context):
        partition = response.topics[0].partitions[0]
        partition.leader_id, partition.leader_epoch = 7, partition.leader_epoch + 1

    with RawClient(broker.port) as client:
        client.ask(creation("orders"), CREATE)
        before = client.ask(question("orders"), METADATA).topics[0].partitions[0]
        broker.faults.add("Metadata", topic="orders", change_response=name_another_leader, times=1)
        changed = client.ask(question("orders"), METADATA).topics[0].partitions[0]
        assert (changed.leader_id, changed.leader_epoch) == (7, before.leader_epoch + 1)
        assert client.ask(question("orders"), METADATA).topics[0].partitions[0] == before


@pytest.mark.parametrize("in_process", [False, True])
def test_fields_of_a_response_are_others_for_one_topic(in_process):
    fields = {"topics.partitions.leader_id": 7, "topics.partitions.isr_nodes": [7, 8]}
    with odradek.Broker(process=in_process) as tested, RawClient(tested.port) as client:
        client.ask(creation("orders"), CREATE)
        client.ask(creation("payments"), CREATE)
        both = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("orders", "payments")])
        before = client.ask(both, METADATA)
        fault = tested.faults.add("Metadata", topic="orders", response_fields=fields, times=1)
        assert tested.faults.all()[0]["response_fields"] == fields
        orders, payments = (topic.partitions[0] for topic in client.ask(both, METADATA).topics)
        assert (orders.leader_id, orders.isr_nodes) == (7, [7, 8])
        assert payments.leader_id == before.topics[1].partitions[0].leader_id
        assert fault.fired == 1
        assert client.ask(both, METADATA).topics == before.topics


def test_fields_of_a_fetch_are_others_and_its_records_are_there(broker):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(settings)
    producer.produce("orders", b"paid")
    assert producer.flush(30) == 0
    fields = {"responses.partitions.high_watermark": 99}
    broker.faults.add("Fetch", topic="orders", partition=0, response_fields=fields)
    consumer = Consumer({**settings, "group.id": "shop"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(30).value() == b"paid"
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), cached=True)[1] == 99
    consumer.close()


def test_a_member_gets_the_assignment_that_a_test_wants(broker):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(30)

    def give_the_last(response, context):
        for topic in response.assignment.topic_partitions if response.assignment else ():
            topic.partitions = [3]

    broker.faults.add("ConsumerGroupHeartbeat", group="shop", change_response=give_the_last)
    consumer = Consumer({**settings, "group.id": "shop", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    assert [one.partition for one in consumer.assignment()] == [3]
    consumer.close()


def test_functions_are_for_a_broker_in_this_process():
    with odradek.Broker(process=True) as tested:
        for name in ("respond", "change_response"):
            with pytest.raises(TestKitError, match="a Python object is for a broker in this process"):
                tested.faults.add("Metadata", **{name: lambda *_: None})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"respond": "x"}, "respond is a function, not 'x'"),
        ({"predicate": 1, "disconnect": True}, "predicate is a function, not 1"),
        ({"respond": print, "change_response": print}, "a fault does one thing"),
        ({"disconnect": True, "lose_response": True}, "a fault does one thing"),
        ({"response_fields": 1}, "response_fields is values by the paths of fields, not 1"),
        ({"response_fields": {"topics.leader": 1}}, "Metadata has no field 'topics.leader'"),
        ({"response_fields": {"topics.partitions": 1}}, "Metadata has no field 'topics.partitions'"),
        ({"response_fields": {"topics.error_code": "x"}}, "topics.error_code of the .* cannot be 'x'"),
        ({"response_fields": {"topics.error_code": 1 << 20}}, "cannot be 1048576"),
        ({"response_fields": {"topics.topic_id": "x"}}, "topics.topic_id of the .* cannot be 'x'"),
        ({"disconnect": True, "hold_response": True}, "disconnect has no response that hold_response"),
        ({"never_respond": True, "hold_response": True}, "never_respond has no response that hold_response"),
    ],
)
def test_what_cannot_be_is_refused(broker, given, sentence):
    with pytest.raises(TestKitError, match=sentence):
        broker.faults.add("Metadata", **given)


def test_a_broker_says_which_partition_coordinates_a_group(broker):
    with pytest.raises(TestKitError, match="there is no topic __consumer_offsets yet"):
        broker.call_kit("state.coordinating_partition", {"group": "shop"})
    with RawClient(broker.port) as client:
        assert client.ask(FindCoordinatorRequest(key="shop", key_type=0), 3).error_code in (0, 15)
        client.ask(creation("orders"), CREATE)  # of a queue of changes: the first one is done
    found = broker.call_kit("state.coordinating_partition", {"group": "shop"})
    # The hash of Java's String, as in Kafka's Utils.abs(groupId.hashCode) % 50.
    assert found == {"topic": "__consumer_offsets", "partition": 3529462 % 50}


def test_other_languages_release_what_is_held():
    port = free_port()
    with odradek.Broker(options={"odradek.test.api.listen": str(port)}) as tested:

        def call(path, **arguments):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/admin/faults{path}", json.dumps(arguments), headers)
            return json.loads(connection.getresponse().read())

        fault = call("", api="CreateTopics", hold=True)
        with RawClient(tested.port) as client:
            client.send_request(creation("orders"), CREATE)
            assert call("/wait", id=fault) == 1
            assert call("/release", id=fault) == 1
            assert client.receive(CreateTopicsRequest, CREATE)[1].topics[0].error_code == ErrorCode.NONE
