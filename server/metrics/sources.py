"""Reads the values of all metrics from a serving broker: generators of samples, family by family.

None among the samples is a place for a pause. Nothing is kept but the ages of batches (`lag.py`).
"""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.server.metrics.clients import client_samples
from odradek.server.metrics.details import reasons_not_ready
from odradek.server.metrics.durations import quantile_ms, upper_s
from odradek.server.metrics.exposition import Sample, label_text
from odradek.server.metrics.families import DESCRIPTION_COUNTS, FAMILY, LINUX_DISK
from odradek.server.metrics.lag import AgeCache, GroupLag, lags_of
from odradek.server.metrics.replication import replication_samples
from odradek.server.metrics.shares import share_samples
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.version import __version__

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import PartitionView
    from odradek.server.metrics.disk_space import DiskSpace
    from odradek.server.metrics.loop_watch import LoopWatch
    from odradek.server.metrics.new_connections import CreationRates
    from odradek.server.metrics.observed import Observed
    from odradek.server.network._pipeline import Route
    from odradek.server.network.listeners import Listener
    from odradek.storage.log.partition import Partition

STEP = 250
"""Partitions that are looked at without a pause."""
OPENING_STEPS = 63
"""Cost of opening a partition, in looks at others: four are opened without a pause, in a millisecond."""
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)
_CODES = {code.value: code.name for code in ErrorCode}
_GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
_DESCRIPTION_COUNTED = (
    *(f"{operation}_{result}" for operation in ("set", "get", "delete") for result in ("success", "error")),
    "cleanup_eligible",
)
_JMX = "kafka_server_brokertopicmetrics_"
_QUOTAS = ("produce", "fetch", "request", "controller")
_NO_LABELS = ""

Samples = Iterator[Sample | None]
PartitionValue = Callable[["Partition"], int]
ViewValue = Callable[["PartitionView"], int]

_LOG_VALUES: tuple[tuple[str, PartitionValue], ...] = (
    ("kafka_topic_partition_current_offset", lambda log: log.high_watermark),
    ("kafka_topic_partition_oldest_offset", lambda log: log.log_start_offset),
    ("kafka_log_log_size", lambda log: log.size_bytes),
    ("kafka_log_log_logstartoffset", lambda log: log.log_start_offset),
    ("kafka_log_log_logendoffset", lambda log: log.log_end_offset),
    ("kafka_log_log_numlogsegments", lambda log: len(log.log.segments)),
)
_VIEW_VALUES: tuple[tuple[str, ViewValue], ...] = (
    ("kafka_topic_partition_leader", lambda one: one.leader),
    (
        "kafka_topic_partition_leader_is_preferred",
        lambda one: int(bool(one.replicas) and one.leader == one.replicas[0]),
    ),
    ("kafka_topic_partition_replicas", lambda one: len(one.replicas)),
    ("kafka_topic_partition_in_sync_replica", lambda one: len(one.isr)),
    ("kafka_topic_partition_under_replicated_partition", lambda one: int(len(one.isr) < len(one.replicas))),
)
_MINIMUM_VALUES: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("kafka_cluster_partition_underminisr", lambda spare: spare < 0),
    ("kafka_cluster_partition_atminisr", lambda spare: spare == 0),
)
"""By how many more replicas are in sync than `min.insync.replicas`."""
_TRAFFIC: tuple[tuple[str, PartitionValue], ...] = (
    (f"{_JMX}messagesin_total", lambda log: log.traffic.records_in),
    (f"{_JMX}bytesin_total", lambda log: log.traffic.bytes_in),
    (f"{_JMX}bytesout_total", lambda log: log.traffic.bytes_out),
    (f"{_JMX}totalproducerequests_total", lambda log: log.traffic.produce_requests),
    (f"{_JMX}totalfetchrequests_total", lambda log: log.traffic.fetch_requests),
    (f"{_JMX}failedproducerequests_total", lambda log: log.traffic.failed_produce_requests),
    (f"{_JMX}failedfetchrequests_total", lambda log: log.traffic.failed_fetch_requests),
)


class Sources:
    """The values of one broker."""

    def __init__(
        self,
        server: Observed,
        series_max: int,
        watch: LoopWatch,
        disks: DiskSpace,
        creation_rates: CreationRates,
    ) -> None:
        """`series_max`: above it the families of partitions and commits are left out."""
        self._server = server
        self._series_max = series_max
        self._watch = watch
        self._disks = disks
        self._creation_rates = creation_rates
        self._ages = AgeCache()
        self._consumer_fetches: dict[int, int] = {}

    def samples(self, now_ms: int) -> Samples:
        """All of them; those of a family come one after the other."""
        self._ages.begin()
        omitted: list[tuple[str, int]] = []
        yield from self._requests()
        logs: list[Partition] = []
        yield from self._opened(logs)
        yield from self._traffic(logs)
        yield from self._connections()
        yield from self._cluster()
        yield from replication_samples(self._server.replication, self._series_max, omitted)
        yield from self._partitions(omitted)
        yield from self._groups(now_ms, omitted)
        yield from share_samples(self._server, self._led, self._series_max, omitted)
        yield from self._transactions(now_ms)
        yield from self._fetch_sessions()
        yield from self._directories()
        yield None
        yield from self._disk_work(logs)
        yield from self._throttles()
        yield None
        yield from self._process()
        yield None
        if self._server.cluster_view.client_metrics_configs:
            # Else nobody pushes, and what takes pushes is not imported yet.
            yield from client_samples(self._server.client_metrics, now_ms, omitted)
        for family, number in omitted:
            yield "odradek_metrics_series_omitted", label_text(family=family), number

    def _opened(self, logs: list[Partition]) -> Samples:
        """Only pauses; adds every partition to `logs`. After a start the first scrape opens them, each reads
        a few files."""
        steps = 0
        for key in self._server.store.places.names():
            steps += OPENING_STEPS if self._server.store.places.is_unopened(*key) else 1
            log = self._find(*key)
            if log is not None:
                logs.append(log)
            if steps >= STEP:
                steps = 0
                yield None

    def _find(self, topic: str, index: int) -> Partition | None:
        """None for a partition that is not here, or whose disk has failed."""
        try:
            return self._server.store.get(topic, index)
        except KafkaError:
            return None

    # Requests

    def _requests(self) -> Samples:
        routes = [
            route
            for route in list(self._server.connections.dispatcher.routes.found.values())
            if route.requests
        ]
        routes.sort(key=lambda route: (route.api_name, route.api_version))
        for route in routes:
            labels = label_text(request=route.api_name, version=route.api_version)
            yield "kafka_network_requestmetrics_requests_total", labels, route.requests
        yield from self._fetches([route for route in routes if route.api_key == FetchRequest.api_key])
        by_name = {
            name: list(of_name) for name, of_name in itertools.groupby(routes, key=lambda one: one.api_name)
        }
        for name, of_name in by_name.items():
            yield from _errors(name, [route.errors for route in of_name])
        times = {
            name: [sum(column) for column in zip(*(route.times for route in of_name), strict=True)]
            for name, of_name in by_name.items()
        }
        for name, counts in times.items():
            for quantile in QUANTILES:
                labels = label_text(request=name, quantile=quantile)
                yield "kafka_network_requestmetrics_totaltimems", labels, quantile_ms(counts, quantile)
        for name, of_name in by_name.items():
            seconds = sum(route.nanoseconds for route in of_name) / 1e9
            yield from _histogram("odradek_request_seconds", {"request": name}, times[name], seconds)
        for family, attribute in (
            ("odradek_request_bytes_total", "bytes_in"),
            ("odradek_response_bytes_total", "bytes_out"),
        ):
            for name, of_name in by_name.items():
                size_bytes = sum(getattr(route, attribute) for route in of_name)
                yield family, label_text(request=name), size_bytes

    def _fetches(self, routes: Iterable[Route]) -> Samples:
        """Fetches of consumers and of followers, of which only the latter are counted by themselves. One that
        is still to be sent is counted by them alone: what is left must not go down for a moment."""
        of_followers = self._server.coordinators.leadership.follower_fetches
        of_consumers = self._consumer_fetches
        for route in routes:
            version = route.api_version
            left = route.requests - of_followers[version]
            of_consumers[version] = max(left, of_consumers.get(version, 0))
        for name, counts in (("FetchConsumer", of_consumers), ("FetchFollower", of_followers)):
            for version, number in sorted(counts.items()):
                if number:
                    labels = label_text(request=name, version=version)
                    yield "kafka_network_requestmetrics_requests_total", labels, number

    def _traffic(self, logs: Sequence[Partition]) -> Samples:
        sums: dict[str, list[int]] = {}
        for number, log in enumerate(logs):
            traffic = log.traffic
            if (
                traffic.produce_requests
                or traffic.fetch_requests
                or traffic.failed_produce_requests
                or traffic.failed_fetch_requests
            ):
                of_topic = sums.setdefault(log.topic, [0] * len(_TRAFFIC))
                for place, (_, value) in enumerate(_TRAFFIC):
                    of_topic[place] += value(log)
            if number % STEP == STEP - 1:
                yield None
        for place, (family, _) in enumerate(_TRAFFIC):
            for topic in sorted(sums):
                yield family, label_text(topic=topic), sums[topic][place]

    def _connections(self) -> Samples:
        counts = {listener.name: 0 for listener in self._server.listeners}
        for connection in self._server.connections:
            counts[connection.listener_name] += 1
        created = self._server.connections.created
        rates = self._creation_rates.now()
        for family, values in (
            ("connection_count", counts),
            ("connection_creation_total", {name: created[name] for name in counts}),
            ("connection_creation_rate", {name: round(rates.get(name, 0.0), 6) for name in counts}),
            (
                "successful_authentication_total",
                {one.name: _successes(one) for one in self._server.listeners},
            ),
            ("failed_authentication_total", {one.name: _failures(one) for one in self._server.listeners}),
        ):
            for name, value in values.items():
                yield f"kafka_server_socketservermetrics_{family}", label_text(listener=name), value

    # The cluster

    def _has_controller(self) -> bool:
        """A node alone decides for itself, and the first of several workers has the controller of all."""
        config = self._server.config
        return config.cluster is None or any(one.id == config.node_id for one in config.cluster.controllers)

    def _cluster(self) -> Samples:
        view = self._server.cluster_view
        yield "kafka_brokers", _NO_LABELS, len(view.brokers)
        for node_id, broker in sorted(view.brokers.items()):
            endpoint = next(iter(broker.endpoints.values()), None)
            # Without a host the broker tells each client the address at which it came.
            address = "" if endpoint is None else f"{endpoint.host or 'localhost'}:{endpoint.port}"
            yield "kafka_broker_info", label_text(address=address, id=node_id), 1
        controller, manager = "kafka_controller_kafkacontroller_", "kafka_server_replicamanager_"
        total = leaderless = led = under = under_min = at_min = offline = 0
        placed = ((topic.name, one) for topic in view.topics.values() for one in topic.partitions)
        for name, one in placed:
            total += 1
            leaderless += one.leader < 0
            if one.leader == self._server.node_id:
                led += 1
                under += len(one.isr) < len(one.replicas)
                spare = self._spare_replicas(name, one)
                under_min += spare < 0
                at_min += spare == 0
            if total % STEP == 0:
                yield None
        places = list(self._server.store.places.by_key.values())
        for number, place in enumerate(places):
            offline += place.offline_because is not None
            if number % STEP == STEP - 1:
                yield None
        for name, value in (
            (f"{controller}activecontrollercount", int(self._has_controller())),
            (f"{controller}globaltopiccount", len(view.topics)),
            (f"{controller}globalpartitioncount", total),
            (f"{controller}offlinepartitionscount", leaderless),
            (f"{controller}fencedbrokercount", len(view.registrations.keys() - view.brokers.keys())),
            (f"{controller}activebrokercount", len(view.brokers)),
            (f"{manager}partitioncount", len(places)),
            (f"{manager}leadercount", led),
            (f"{manager}underreplicatedpartitions", under),
            (f"{manager}underminisrpartitioncount", under_min),
            (f"{manager}atminisrpartitioncount", at_min),
            (f"{manager}offlinereplicacount", offline),
        ):
            yield name, _NO_LABELS, value

    def _spare_replicas(self, topic: str, one: PartitionView) -> int:
        """How many more are in sync than `min.insync.replicas`, or than there are if it asks for more, as in
        Kafka. 1 of a log that cannot be read."""
        log = self._find(topic, one.index)
        return 1 if log is None else _spare(log, one)

    def _partitions(self, omitted: list[tuple[str, int]]) -> Samples:
        view = self._server.cluster_view
        topics = sorted(
            (topic for topic in view.topics.values() if not topic.is_internal), key=lambda topic: topic.name
        )
        for topic in topics:
            yield "kafka_topic_partitions", label_text(topic=topic.name), len(topic.partitions)
        number = sum(len(topic.partitions) for topic in topics)
        families = [family for family, _ in (*_VIEW_VALUES, *_LOG_VALUES, *_MINIMUM_VALUES)]
        if number * len(families) > self._series_max:
            omitted += [(family, number) for family in families]
            return
        known: list[tuple[str, PartitionView, Partition | None]] = []
        for topic in topics:
            for one in topic.partitions:
                labels = label_text(topic=topic.name, partition=one.index)
                known.append((labels, one, self._find(topic.name, one.index)))
                if len(known) % STEP == 0:
                    yield None
        for family, of_view in _VIEW_VALUES:
            for labels, one, _ in known:
                yield family, labels, of_view(one)
        for family, of_log in _LOG_VALUES:
            for labels, _, log in known:
                if log is not None:
                    yield family, labels, of_log(log)
        node_id = self._server.node_id
        for family, of_spare in _MINIMUM_VALUES:
            for labels, one, log in known:
                if log is not None:
                    yield family, labels, int(one.leader == node_id and of_spare(_spare(log, one)))

    # Coordinators

    def _groups(self, now_ms: int, omitted: list[tuple[str, int]]) -> Samples:
        groups: list[GroupLag] = []
        find = self._led
        coordinator = self._server.coordinators.groups
        machines = list(coordinator().partitions.values()) if coordinator.is_made else []
        for running in machines:
            if running.machine is None:
                continue
            for found in lags_of(running.machine, self._server.cluster_view, find, self._ages):
                if found is not None:
                    groups.append(found)
                yield None
        groups.sort(key=lambda group: group.group)
        number = sum(len(group.partitions) for group in groups)
        families = ("kafka_consumergroup_current_offset", "kafka_consumergroup_lag")
        if number * len(families) > self._series_max:
            omitted += [(family, number) for family in families]
        else:
            for family, attribute in zip(families, ("committed", "lag"), strict=True):
                for group in groups:
                    for one in group.partitions:
                        labels = label_text(
                            consumergroup=group.group, topic=one.topic, partition=one.partition
                        )
                        yield family, labels, getattr(one, attribute)
        yield from _group_sums(groups, now_ms)
        for group in groups:
            yield "kafka_consumergroup_members", label_text(consumergroup=group.group), group.members
        for group in groups:
            past = sum(one.is_past_end for one in group.partitions)
            if past:
                yield "odradek_consumergroup_offsets_past_end", label_text(consumergroup=group.group), past
        for group in groups:
            labels = label_text(consumergroup=group.group)
            yield "odradek_consumergroup_partitions_without_commit", labels, group.without_commit
        counts = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        yield counts, _NO_LABELS, len(groups)
        for state in _GROUP_STATES:
            yield f"{counts}{state.lower()}", _NO_LABELS, sum(group.state == state for group in groups)
        metrics = "kafka_server_group_coordinator_metrics"
        yield f"{metrics}_offset_count", _NO_LABELS, sum(group.offset_count for group in groups)
        classic = [group.state for group in groups if group.is_classic]
        for state in _GROUP_STATES:
            yield f"{metrics}_classic_group_count", label_text(state=state), classic.count(state)
        descriptions = coordinator().descriptions if coordinator.is_made else None
        for name in _DESCRIPTION_COUNTED:
            number = 0 if descriptions is None else getattr(descriptions.counts, name)
            yield f"{DESCRIPTION_COUNTS}_{name}_total", _NO_LABELS, number

    def _led(self, topic: str, index: int) -> Partition | None:
        if self._server.cluster_view.leader_of(topic, index) != self._server.node_id:
            return None
        return self._find(topic, index)

    def _transactions(self, now_ms: int) -> Samples:
        coordinator = self._server.coordinators.transactions
        begun = list(_ongoing(coordinator().partitions.values())) if coordinator.is_made else []
        yield "odradek_transactions_open", _NO_LABELS, len(begun)
        name = "kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max"
        yield name, _NO_LABELS, max((now_ms - start_ms for start_ms in begun), default=0)

    def _fetch_sessions(self) -> Samples:
        sessions = self._server.connections.dispatcher.routes.served(FetchRequest.api_key).handle.sessions
        cache = "kafka_server_fetchsessioncache_numincrementalfetch"
        yield f"{cache}sessions", _NO_LABELS, len(sessions)
        yield f"{cache}partitionscached", _NO_LABELS, sessions.partition_count()

    # The machine

    def _directories(self) -> Samples:
        places, disks = self._server.store.places, self._disks
        used = dict.fromkeys(places.homes, 0)
        for number, place in enumerate(list(places.by_key.values())):
            if place.partition is not None:
                used[place.home.path] += place.partition.size_bytes
            if number % STEP == STEP - 1:
                yield None
        failures = self._server.store.failing_disks.failures
        labels = {path: label_text(dir=path) for path in places.homes}
        spaces = {path: disks.space(path) for path in labels if path not in failures}
        known = {path: space for path, space in spaces.items() if space is not None}
        for path, space in known.items():
            yield "odradek_log_dir_free_bytes", labels[path], space.free_bytes
        for path, space in known.items():
            yield "odradek_log_dir_total_bytes", labels[path], space.total_bytes
        for path in known:
            yield "odradek_log_dir_space_age_seconds", labels[path], round(disks.age_s(path), 3)
        for path in known:
            left_s = disks.seconds_until_full(path)
            if left_s is not None:
                yield "odradek_log_dir_seconds_until_full", labels[path], round(left_s)
        for path in spaces:
            yield "odradek_log_dir_used_bytes", labels[path], used[path]
        for path in labels:
            yield "odradek_log_dir_online", labels[path], int(path not in failures)

    def _disk_work(self, logs: Sequence[Partition]) -> Samples:
        times = self._server.schedule.turn.flushes.times
        yield from _histogram("odradek_flush_seconds", {}, times.counts, times.seconds)
        store = self._server.store
        seconds, bytes_read = store.compacted
        yield "odradek_compaction_seconds_total", _NO_LABELS, round(seconds, 3)
        yield "odradek_compaction_bytes_total", _NO_LABELS, bytes_read
        looked, dirtiest = 0, 0.0
        for log in logs:
            looked += 1
            # A deleted one has no place any more.
            if log.config.is_compacted and store.places.place_of(log) is not None:
                looked += len(log.log.segments)
                dirtiest = max(dirtiest, _dirty_ratio(log, store.checkpointing.first_dirty_of(log)))
            if looked >= STEP:
                looked = 0
                yield None
        yield "odradek_compaction_dirty_ratio_max", _NO_LABELS, round(dirtiest, 4)

    def _throttles(self) -> Samples:
        meters = self._server.connections.quota_meters
        waits_ms = dict.fromkeys(_QUOTAS, 0) if meters is None else meters.waits_ms()
        for quota, wait_ms in waits_ms.items():
            yield "odradek_throttle_seconds_total", label_text(quota=quota), wait_ms / 1000

    def _process(self) -> Samples:
        yield "odradek_ready", _NO_LABELS, int(not reasons_not_ready(self._server))
        yield "odradek_loop_late_seconds", _NO_LABELS, self._watch.worst_s
        times = os.times()
        yield "process_cpu_seconds_total", _NO_LABELS, round(times.user + times.system, 2)
        yield from _process_of_linux()
        yield from _linux_disk()
        labels = label_text(version=__version__, python=platform.python_version())
        yield "odradek_build_info", labels, 1
        if self._server.config.worker is not None:
            yield "odradek_worker_info", label_text(worker=self._server.config.worker), 1


def _successes(listener: Listener) -> int:
    """Successful authentications, as in Kafka: one when all that the listener asks for is right, none where
    it asks for nothing."""
    if listener.sasl is not None:
        return listener.sasl.successes
    return 0 if listener.tls is None else listener.tls.established_count


def _failures(listener: Listener) -> int:
    of_tls = 0 if listener.tls is None else listener.tls.failed_count
    return of_tls + (0 if listener.sasl is None else listener.sasl.failures)


def _ongoing(partitions: Iterable[Any]) -> Iterator[int]:
    """When each open transaction began, of a coordinator's partitions."""
    from odradek.coordinator.transactions.state import TransactionState  # with the first transaction

    for running in partitions:
        if running.machine is not None:
            for transaction in running.machine.transactions.values():
                if transaction.state is TransactionState.ONGOING:
                    yield transaction.start_ms


def _spare(log: Partition, one: PartitionView) -> int:
    return len(one.isr) - min(log.config.min_insync_replicas, len(one.replicas))


def _errors(name: str, counts: Iterable[dict[int, int]]) -> Samples:
    errors: dict[int, int] = {}
    for one in counts:
        for code, number in list(one.items()):
            errors[code] = errors.get(code, 0) + number
    for code, number in sorted(errors.items()):
        labels = label_text(request=name, error=_CODES.get(code, str(code)))
        yield "kafka_network_requestmetrics_errors_total", labels, number


def _histogram(family: str, labels: dict[str, str], counts: Sequence[int], seconds: float) -> Samples:
    total = 0
    for place, number in enumerate(counts):
        total += number
        upper = "+Inf" if place == len(counts) - 1 else f"{upper_s(place):.9g}"
        yield f"{family}_bucket", label_text(**labels, le=upper), total
    yield f"{family}_sum", label_text(**labels), seconds
    yield f"{family}_count", label_text(**labels), total


def _dirty_ratio(log: Partition, first_dirty: int) -> float:
    """The part of the segments before the active one that has not been compacted."""
    closed = log.log.segments[:-1]
    all_bytes = sum(segment.size_bytes for segment in closed)
    dirty_bytes = sum(segment.size_bytes for segment in closed if segment.base_offset >= first_dirty)
    return dirty_bytes / all_bytes if all_bytes else 0.0


def _group_sums(groups: list[GroupLag], now_ms: int) -> Samples:
    sums: list[tuple[str, int, int, float]] = []
    for group in groups:
        by_topic: dict[str, list[int]] = {}
        for one in group.partitions:
            of_topic = by_topic.setdefault(one.topic, [0, 0, -1])
            of_topic[0] += one.committed
            of_topic[1] += one.lag
            if one.timestamp_ms >= 0 and (of_topic[2] < 0 or one.timestamp_ms < of_topic[2]):
                of_topic[2] = one.timestamp_ms
        for topic, (committed, lag, oldest_ms) in by_topic.items():
            seconds = max(0.0, (now_ms - oldest_ms) / 1000) if oldest_ms >= 0 else 0.0
            sums.append((label_text(consumergroup=group.group, topic=topic), committed, lag, seconds))
    for labels, committed, _, _ in sums:
        yield "kafka_consumergroup_current_offset_sum", labels, committed
    for labels, _, lag, _ in sums:
        yield "kafka_consumergroup_lag_sum", labels, lag
    for labels, _, _, seconds in sums:
        yield "odradek_consumergroup_lag_seconds", labels, seconds


def _process_of_linux() -> Samples:
    """Samples from /proc; none on other systems."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        descriptors = len(os.listdir("/proc/self/fd"))
    except (OSError, StopIteration, ValueError):
        return
    import resource

    ticks = os.sysconf("SC_CLK_TCK")
    yield "process_resident_memory_bytes", _NO_LABELS, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    yield "process_virtual_memory_bytes", _NO_LABELS, int(fields[20])
    yield "process_open_fds", _NO_LABELS, descriptors
    yield "process_max_fds", _NO_LABELS, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_start_time_seconds", _NO_LABELS, booted + int(fields[19]) / ticks


def _linux_disk() -> Samples:
    """Numbers that Linux counts for this process; none elsewhere, and where they may not be read."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counted = {name: int(value) for name, value in (line.split(":") for line in file)}
    except (OSError, ValueError):
        return
    for name, value in counted.items():
        if (family := LINUX_DISK + name) in FAMILY:
            yield family, _NO_LABELS, value


assert all(name in FAMILY for name, _ in (*_LOG_VALUES, *_VIEW_VALUES, *_MINIMUM_VALUES, *_TRAFFIC))
