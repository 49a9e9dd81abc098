"""Every operation of the Java admin client, of 4.4 and of 3.9: it works, or it is refused at once.

`AdminSweep.java` does them one after the other. Nothing may wait for a time-out.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from compat_tests import reference
from compat_tests.brokers import TestBroker
from compat_tests.clients.java import SOURCE
from compat_tests.stories import topic_name

AT_ONCE_MS = 10_000
"""The client's own time-outs are 15 and 20 s; a cold JVM on a busy machine takes a second or two."""

SERVED = {
    "createTopics": "2 1 86400000",
    "listTopics": "true",
    "describeTopics": "2 1 1 true false",
    "createPartitions": "null",
    "describeConfigs": "86400000 DYNAMIC_TOPIC_CONFIG 1",
    "incrementalAlterConfigs": "null",
    "alterConfigs": "null",
    "listOffsets": "0 5 4 3 0 -1",
    "alterConsumerGroupOffsets": "null",
    "listConsumerGroupOffsets": "2 3 note",
    "deleteConsumerGroupOffsets": "1",
    "listConsumerGroups": "1",
    "describeConsumerGroups": "Stable 1 3 range",
    "removeMembersFromConsumerGroup": "Empty 0",
    "deleteConsumerGroups": "0",
    "describeCluster": "1 true 22",
    "deleteRecords": "2",
    "describeProducers": "1",
    "fenceProducers": "null",
    "abortTransaction": "null",
    "describeLogDirs": "1 true true",
    "describeReplicaLogDirs": "0",
    "alterPartitionReassignments": "null",
    "listPartitionReassignments": "0",
    "deleteTopics": "false",
    "describeMetadataQuorum": "1",
    "alterClientQuotas": "null",
    "alterUserScramCredentials": "null",
    "describeClientQuotas": "0",
    "electLeaders": "ElectionNotNeededException",
    "listClientMetricsResources": "0",
    "metrics": "false",
    "close": "closed",
}
"""Operation -> what `AdminSweep.java` prints of its answer; the same from both brokers."""

SERVED_NEWER = {
    "listConfigResources": "true",
    "forceTerminateTransaction": "null",
    "listGroups": "[Optional[Empty]]",
    "describeClassicGroups": "Empty",
    "alterStreamsGroupOffsets": "null",
    "listStreamsGroupOffsets": "2",
    "deleteStreamsGroupOffsets": "null",
    "deleteStreamsGroups": "null",
    "alterShareGroupOffsets": "null",
    "listShareGroupOffsets": "2 Optional[4]",
    "describeShareGroups": "Empty 0",
    "deleteShareGroupOffsets": "null",
    "deleteShareGroups": "null",
}

REFUSED_ALIKE = {
    "unregisterBroker": "BrokerIdNotRegisteredException",
    "removeRaftVoter": "VoterNotFoundException",
    "unregisterController": "ControllerIdNotRegisteredException",
    "describeAcls": "SecurityDisabledException",
    "createAcls": "SecurityDisabledException",
    "deleteAcls": "SecurityDisabledException",
    "createDelegationToken": "UnsupportedByAuthenticationException",
    "renewDelegationToken": "UnsupportedByAuthenticationException",
    "expireDelegationToken": "UnsupportedByAuthenticationException",
    "describeDelegationToken": "UnsupportedByAuthenticationException",
}
"""Refused by Kafka, too, as long as it has no authorizer and no SASL."""

REFUSED_OTHERWISE = {
    # It asks for a transactional id that nobody has used.
    "describeTransactions": {"TransactionalIdNotFoundException"},
    # There is no voter but us; Kafka tries to reach the one that it asks for.
    "addRaftVoter": {"InvalidRequestException"},
    # It asks for a `metadata.version` that is too low.
    "updateFeatures": {"InvalidUpdateVersionException"},
    # The group that it asks for has offsets and no members: it is a classic one.
    "describeStreamsGroups": {"GroupIdNotFoundException"},
    # It asks for a directory that there is not.
    "alterReplicaLogDirs": {"LogDirNotFoundException"},
}

NO_CLAIM = {
    "describeFeatures",  # whatever is finalized is told
    "describeUserScramCredentials",  # and users that an earlier sweep has made, where they can be
    "listTransactions",  # and whoever has used a transactional id
    "clientInstanceId",  # needs telemetry, which an admin client has off
    "create",
    "registerMetricForSubscription",
    "unregisterMetricFromSubscription",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one operation."""

    milliseconds: int
    failure: str | None
    text: str


@pytest.fixture(scope="module", params=[reference.CURRENT, reference.OLDER])
def sweep(bootstrap: str, request: pytest.FixtureRequest) -> dict[str, Told]:
    sources = [SOURCE.with_name("AdminSweep.java")]
    if request.param == reference.CURRENT:
        sources.append(SOURCE.with_name("AdminSweepNewer.java"))
    arguments = (bootstrap, topic_name("sweep"))
    lines = reference.run_java(*sources, arguments=arguments, version=request.param).splitlines()
    told = {}
    for fields in (line.split("\t") for line in lines if line.count("\t") >= 3):
        operation, milliseconds, outcome, *rest = fields
        failure = rest[0] if outcome == "failed" else None
        told[operation] = Told(int(milliseconds), failure, rest[-1])
    return told


def test_every_operation_of_the_interface_is_tried(sweep: dict[str, Told]) -> None:
    assert set(sweep["all"].text.split()) - sweep.keys() <= NO_CLAIM
    known = {*SERVED, *SERVED_NEWER, *REFUSED_ALIKE, *REFUSED_OTHERWISE, *NO_CLAIM, "all"}
    assert sweep.keys() <= known


def test_what_is_served_answers_as_kafka_does(sweep: dict[str, Told]) -> None:
    expected = {name: text for name, text in (SERVED | SERVED_NEWER).items() if name in sweep}
    assert {name: sweep[name].text for name in expected} == expected
    assert sweep["describeFeatures"].failure is None
    assert sweep["describeUserScramCredentials"].failure is None
    assert sweep["listTransactions"].failure is None


def test_what_kafka_refuses_is_refused_alike(sweep: dict[str, Told]) -> None:
    expected = {name: failure for name, failure in REFUSED_ALIKE.items() if name in sweep}
    assert {name: sweep[name].failure for name in expected} == expected


def test_what_is_refused_is_refused_at_once(sweep: dict[str, Told], broker: TestBroker) -> None:
    if not broker.is_odradek:
        pytest.skip("what only we refuse so, and how soon")
    for name, failures in REFUSED_OTHERWISE.items():
        assert name not in sweep or sweep[name].failure in failures, name
    slow = {name: told for name, told in sweep.items() if told.failure and told.milliseconds > AT_ONCE_MS}
    assert not slow
