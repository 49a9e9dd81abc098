"""`ClientSettings.check`: what it refuses does not reach a broker."""

import pytest

import odradek
from odradek.client.admin.topics import create_topic, describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.wire.messages.create_topics import CreateTopicsRequest


def test_a_request_that_is_refused_by_the_check_is_not_sent():
    seen = []

    def check(request):
        seen.append(type(request).__name__)
        if isinstance(request, CreateTopicsRequest):
            raise ClientError("no new topics here")

    with (
        odradek.Broker() as broker,
        Cluster(ClientSettings(broker.bootstrap_servers, check=check)) as cluster,
    ):
        with pytest.raises(ClientError, match="no new topics here"):
            create_topic(cluster, "orders", 1, {})
        assert describe_topics(cluster) == ([], [])
        assert seen[-1] == "MetadataRequest"
        assert "CreateTopicsRequest" in seen
