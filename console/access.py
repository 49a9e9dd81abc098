"""The way to the brokers for one person, through which every request goes.

    access = Access(settings, read_only=True, hides_messages=False)
    with access.cluster() as cluster:       # in a thread of its own
        describe_topics(cluster)

`read_only` and `hides_messages` hold here, before a request is sent: whatever a page offers or a person makes
up, the brokers do not get it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.settings import Check, ClientSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_name
from odradek.wire.schema import Message

IDLE_CLUSTERS_MAX = 4
"""Clusters that a person keeps between requests, each with its connections."""

READING: Final = frozenset(
    {
        *("ApiVersions", "Metadata", "DescribeCluster", "DescribeTopicPartitions", "DescribeQuorum"),
        *("ListOffsets", "OffsetForLeaderEpoch", "Fetch", "FindCoordinator"),
        *(
            "ListGroups",
            "DescribeGroups",
            "ConsumerGroupDescribe",
            "ShareGroupDescribe",
            "StreamsGroupDescribe",
        ),
        *("OffsetFetch", "DescribeShareGroupOffsets"),
        *("DescribeConfigs", "ListConfigResources", "DescribeLogDirs", "ListPartitionReassignments"),
        *("DescribeProducers", "DescribeTransactions", "ListTransactions"),
        *("DescribeAcls", "DescribeClientQuotas", "DescribeUserScramCredentials", "DescribeDelegationToken"),
    }
)
"""APIs that change nothing. What is not here is refused with `read_only`, also what is not known yet."""
SHOWING_RECORDS: Final = frozenset({"Fetch", "ShareFetch"})


class Forbidden(ClientError):
    """The console is set up not to do that, whoever asks."""


def check_of(*, read_only: bool, hides_messages: bool) -> Check | None:
    """The check of requests before they are sent; it raises Forbidden. None: all may be sent."""
    if not read_only and not hides_messages:
        return None

    def check(request: Message) -> None:
        api = api_name(type(request).api_key)
        if hides_messages and api in SHOWING_RECORDS:
            raise Forbidden(
                "this console hides messages (--hide-messages)", ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
        if read_only and not _only_reads(api, request):
            raise Forbidden(
                f"this console only reads (--read-only), so {api} is not sent",
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )

    return check


def _only_reads(api: str, request: Message) -> bool:
    if api == "Metadata":
        return not (getattr(request, "topics", None) and getattr(request, "allow_auto_topic_creation", True))
    return api in READING or getattr(request, "validate_only", False) is True


class Access:
    """A person's clusters. A `Cluster` is for one thread, so each call gets one of its own for a while."""

    def __init__(
        self, settings: ClientSettings, *, read_only: bool = False, hides_messages: bool = False
    ) -> None:
        self.read_only, self.hides_messages = read_only, hides_messages
        self._settings = replace(settings, check=check_of(read_only=read_only, hides_messages=hides_messages))
        self._idle: list[Cluster] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """A cluster for one thread. After an error that is no ClientError its connections are closed."""
        cluster = self._taken()
        try:
            yield cluster
        except ClientError:
            self._give_back(cluster)
            raise
        except BaseException:
            cluster.close()
            raise
        self._give_back(cluster)

    def own_cluster(self) -> Cluster:
        """A cluster that the caller closes, for what stays long. ClientError after `close`."""
        with self._lock:
            self._check_open()
        return Cluster(self._settings)

    @property
    def is_closed(self) -> bool:
        """Whether the session is over."""
        return self._is_closed

    def close(self) -> None:
        """Closes all connections, those in use when they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()

    def _taken(self) -> Cluster:
        with self._lock:
            self._check_open()
            if self._idle:
                return self._idle.pop()
        return Cluster(self._settings)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the session is over: log in again")

    def _give_back(self, cluster: Cluster) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_CLUSTERS_MAX:
                self._idle.append(cluster)
                return
        cluster.close()
