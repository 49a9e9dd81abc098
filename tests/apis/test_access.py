"""What each API needs to be allowed can be told of every request."""

import pytest

from odradek.apis.access import Need, resources
from odradek.apis.prefixes import Prefix
from odradek.apis.table import MODULES, declared
from odradek.server.network._pipeline import Route
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.messages import find
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.produce import ProduceRequest, TopicProduceData
from tests.kit.collecting import collected
from tests.wired import served

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def test_the_resources_of_an_empty_request_can_be_told():
    """That is what a client may send at least: no field is missing for a name."""
    with collected() as failures:
        for api_key in MODULES:
            with failures.of(f"API {api_key}"):
                api = declared(api_key)
                needs, named = api.needs, resources(api.needs, api.request())
                assert named.keys() <= {(need.operation, need.resource_type) for need in needs}


def test_resources_are_named_by_the_request_in_all_its_forms():
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id="x", topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])]
        )
    ]
    configs = [
        DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((2, "t"), (4, "1"), (8, "1"), (32, "g"))
    ]
    write, describe, configure = Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
    fetched = [(describe, GROUP, ""), (describe, TOPIC, "t")]
    in_group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(topic_id=b"id")])
    expected = [
        (
            ProduceRequest(transactional_id="x", topic_data=[TopicProduceData(name="t")]),
            [(write, TRANSACTIONAL_ID, "x"), (write, TOPIC, "t")],
        ),
        (
            ProduceRequest(topic_data=[TopicProduceData(topic_id=bytes(range(16)))]),
            [(write, TOPIC, bytes(range(16)))],
        ),
        (
            AddPartitionsToTxnRequest(transactions=transactions),
            [(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")],
        ),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x", v3_and_below_topics=transactions[0].topics
            ),
            [(write, TRANSACTIONAL_ID, "x"), (write, TOPIC, "t")],
        ),
        (FindCoordinatorRequest(key="g", key_type=0), [(describe, GROUP, "g")]),
        (FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), [(describe, TRANSACTIONAL_ID, "x")]),
        (OffsetFetchRequest(group_id="g"), [(describe, GROUP, "g")]),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), [(describe, GROUP, "g")]),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t")]), fetched),
        (OffsetFetchRequest(groups=[in_group]), [(describe, GROUP, "g"), (describe, TOPIC, b"id")]),
        (InitProducerIdRequest(transactional_id="x"), [(write, TRANSACTIONAL_ID, "x")]),
        (
            InitProducerIdRequest(transactional_id=None),
            [(Operation.IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster")],
        ),
        (
            DescribeConfigsRequest(resources=configs),
            [(configure, TOPIC, "t"), (configure, GROUP, "g"), (configure, CLUSTER, "kafka-cluster")],
        ),
    ]
    for request, needed in expected:
        found = resources(declared(request.api_key).needs, request)
        assert [(*kind, name) for kind, names in found.items() for name in names] == needed, request


def test_what_is_remembered_without_its_handler_names_all_that_it_needs(node):
    """Else a connection would remember a request that its principal is not allowed."""
    remembered = {key for key in node.apis if node.apis[key].prefix is not None}
    assert remembered == {0, 2, 8, 9, 12, 68}
    for key in remembered:
        assert declared(key).needs
        assert all(need.names is not None for need in declared(key).needs), key


def test_no_route_remembers_requests_whose_needs_only_their_handler_knows():
    request, response = find(12)
    api = served(
        request,
        response,
        lambda request, context: None,
        needs=(Need(Operation.READ, ResourceType.TOPIC, None),),
        prefix=Prefix(range(5), lambda request, context: None),
    )
    with pytest.raises(ValueError, match="only its handler knows all its needs"):
        Route(12, 4, api)
