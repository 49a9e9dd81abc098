"""Error codes in responses are found wherever their message has them."""

from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
from odradek.wire.response_errors import errors_of


def found_in(response):
    return errors_of(type(response))(response)


def test_the_error_of_a_response_and_those_of_its_parts_are_found():
    partitions = [
        PartitionData(partition_index=index, error_code=code) for index, code in enumerate((0, 6, 1))
    ]
    topics = [FetchableTopicResponse(topic="t", partitions=partitions)]
    assert found_in(FetchResponse(error_code=70, responses=topics)) == [70, 6, 1]
    assert found_in(FetchResponse(error_code=0, responses=[])) == []
    assert found_in(SaslHandshakeResponse(error_code=33)) == [33]
    assert found_in(ApiVersionsResponse(error_code=35)) == [35]


def test_errors_two_levels_down_and_under_longer_names_are_found():
    partitions = [MetadataResponsePartition(error_code=5), MetadataResponsePartition()]
    topics = [MetadataResponseTopic(error_code=3), MetadataResponseTopic(partitions=partitions)]
    assert found_in(MetadataResponse(topics=topics)) == [3, 5]
    results = [AddPartitionsToTxnPartitionResult(partition_error_code=53)]
    by_topic = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    assert found_in(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=by_topic)) == [53]
