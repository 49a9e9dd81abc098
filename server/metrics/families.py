"""Every metric: name, type, labels, meaning, source and bound.

A family that is read without a line here fails in `exposition.py`, and a line that is never read fails in a
test. Names with `kafka_` are those of kafka_exporter (danielqsj) and of Kafka's JMX beans as Strimzi's rules
for the JMX exporter spell them, so that existing boards show this broker; the others are ours.
"""

from typing import Final, NamedTuple

CLIENT_PREFIX: Final = "kafka_client_"
CLIENT_FAMILY: Final = f"{CLIENT_PREFIX}*"
"""Stands for all that clients push, whose names are theirs."""
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
UNTYPED: Final = "untyped"


class Family(NamedTuple):
    """One metric, with all its series."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    bound: str = "1"
    """How many series there may be."""


PER_PARTITION: Final = ("topic", "partition")
_PARTITIONS = "partitions, see metrics.series.max"
_TOPICS = "topics"
_APIS = "APIs that were asked for"
DESCRIPTION_COUNTS: Final = "kafka_server_group_coordinator_metrics_streams_group_topology_description"
"""Begins the names of the counters of descriptions of topologies (KIP-1331), which are 0 without a store."""
LINUX_DISK: Final = "kafka_server_kafkaserver_linux_disk_"
"""Begins the names of the numbers of /proc/self/io."""

FAMILIES: Final = (
    # Requests
    Family(
        "kafka_network_requestmetrics_requests_total", COUNTER, ("request", "version"),
        "Requests that were answered, or need no answer. Fetch is counted a second time, as FetchConsumer or "
        "FetchFollower.", "APIs and versions that were asked for",
    ),
    Family(
        "kafka_network_requestmetrics_errors_total", COUNTER, ("request", "error"),
        "Error codes in responses, at any depth; NONE is not counted.", "errors that were seen",
    ),
    Family(
        "kafka_network_requestmetrics_totaltimems", GAUGE, ("request", "quantile"),
        "Milliseconds from the whole request to the ready answer, since the start; Fetch and JoinGroup wait "
        "on purpose. Read from the buckets of odradek_request_seconds.", _APIS,
    ),
    Family(
        "odradek_request_seconds", HISTOGRAM, ("request",),
        "Seconds from the whole request to the ready answer, with all waiting.", _APIS,
    ),
    Family("odradek_request_bytes_total", COUNTER, ("request",), "Bytes of requests.", _APIS),
    Family("odradek_response_bytes_total", COUNTER, ("request",), "Bytes of responses.", _APIS),
    # Traffic of topics
    Family(
        "kafka_server_brokertopicmetrics_messagesin_total", COUNTER, ("topic",),
        "Records that were appended: those of clients, and the ends of transactions.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_bytesin_total", COUNTER, ("topic",),
        "Bytes of batches that clients have written, as they are stored.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_bytesout_total", COUNTER, ("topic",),
        "Bytes of batches that consumers have fetched.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_totalproducerequests_total", COUNTER, ("topic",),
        "Appends of clients to a partition.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total", COUNTER, ("topic",),
        "Fetches of consumers that got records of a partition.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, ("topic",),
        "Appends of clients that were refused. As in Kafka not those for another leader, of records that are "
        "too large or damaged, of clients without the right, nor those that the disk refused.", _TOPICS,
    ),
    Family(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, ("topic",),
        "Reads of a partition that were refused. As in Kafka not those for another leader or with an old "
        "epoch, of an offset that is not there, of clients without the right, nor those that the disk "
        "refused.", _TOPICS,
    ),
    # Connections
    Family(
        "kafka_server_socketservermetrics_connection_count", GAUGE, ("listener",),
        "Open connections.", "listeners",
    ),
    Family(
        "kafka_server_socketservermetrics_connection_creation_total", COUNTER, ("listener",),
        "Connections that were let in.", "listeners",
    ),
    Family(
        "kafka_server_socketservermetrics_connection_creation_rate", GAUGE, ("listener",),
        "New connections a second, of the last 30 s.", "listeners",
    ),
    Family(
        "kafka_server_socketservermetrics_successful_authentication_total", COUNTER, ("listener",),
        "Clients that have authenticated by SASL, or without it by the handshake of TLS.", "listeners",
    ),
    Family(
        "kafka_server_socketservermetrics_failed_authentication_total", COUNTER, ("listener",),
        "Authentications that have failed, and handshakes of TLS.", "listeners",
    ),
    # The node in its cluster
    Family("kafka_brokers", GAUGE, (), "Brokers of the cluster that are not fenced."),
    Family(
        "kafka_broker_info", GAUGE, ("address", "id"), "1 for each broker that is not fenced.", "brokers"
    ),
    Family("kafka_server_replicamanager_partitioncount", GAUGE, (), "Replicas on this node."),
    Family("kafka_server_replicamanager_leadercount", GAUGE, (), "Partitions that this node leads."),
    Family(
        "kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (),
        "Partitions led here with fewer replicas in sync than they have.",
    ),
    Family(
        "kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (),
        "Partitions led here with fewer replicas in sync than min.insync.replicas, or than they have, if "
        "that asks for more.",
    ),
    Family(
        "kafka_server_replicamanager_atminisrpartitioncount", GAUGE, (),
        "Partitions led here with as many replicas in sync as that; one replica is such a partition, too.",
    ),
    Family(
        "kafka_server_replicamanager_isrshrinks_total", COUNTER, (),
        "Times that a partition led here lost a replica in sync; also one that the controller has fenced, "
        "which Kafka does not count.",
    ),
    Family(
        "kafka_server_replicamanager_isrexpands_total", COUNTER, (),
        "Times that a partition led here got a replica in sync.",
    ),
    Family(
        "kafka_server_replicamanager_failedisrupdates_total", COUNTER, (),
        "Changes of replicas in sync that the controller has refused.",
    ),
    Family(
        "kafka_server_replicafetchermanager_maxlag", GAUGE, ("clientid",),
        "Most offsets by which a log that is followed here is behind its leader's high watermark.",
    ),
    Family(
        "kafka_server_fetcherlagmetrics_consumerlag", GAUGE, ("clientid", *PER_PARTITION),
        "Offsets by which a log that is followed here is behind its leader's high watermark, by the last "
        "answer of the leader.", _PARTITIONS,
    ),
    Family(
        "kafka_server_replicamanager_offlinereplicacount", GAUGE, (),
        "Replicas of this node whose directory or log has failed.",
    ),
    Family(
        "kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (),
        "1 on a node that decides for the cluster: one that runs alone.",
    ),
    Family("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, (), "Topics of the cluster."),
    Family("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, (), "Partitions of the cluster."),
    Family(
        "kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (),
        "Partitions of the cluster without a leader.",
    ),
    Family("kafka_controller_kafkacontroller_fencedbrokercount", GAUGE, (), "Brokers that are fenced."),
    Family("kafka_controller_kafkacontroller_activebrokercount", GAUGE, (), "Brokers that are not fenced."),
    # Partitions
    Family("kafka_topic_partitions", GAUGE, ("topic",), "Partitions of the topic.", _TOPICS),
    Family(
        "kafka_topic_partition_current_offset", GAUGE, PER_PARTITION,
        "The high watermark: the offset after the last record that a consumer may see.", _PARTITIONS,
    ),
    Family(
        "kafka_topic_partition_oldest_offset", GAUGE, PER_PARTITION, "The first offset.", _PARTITIONS
    ),
    Family("kafka_topic_partition_leader", GAUGE, PER_PARTITION, "Id of the leader, -1: none.", _PARTITIONS),
    Family(
        "kafka_topic_partition_leader_is_preferred", GAUGE, PER_PARTITION,
        "1 if the first replica leads.", _PARTITIONS,
    ),
    Family("kafka_topic_partition_replicas", GAUGE, PER_PARTITION, "Replicas.", _PARTITIONS),
    Family("kafka_topic_partition_in_sync_replica", GAUGE, PER_PARTITION, "Replicas in sync.", _PARTITIONS),
    Family(
        "kafka_topic_partition_under_replicated_partition", GAUGE, PER_PARTITION,
        "1 if not all replicas are in sync.", _PARTITIONS,
    ),
    Family(
        "kafka_cluster_partition_underminisr", GAUGE, PER_PARTITION,
        "1 if it is led here with fewer replicas in sync than min.insync.replicas, or than it has, if that "
        "asks for more.", _PARTITIONS,
    ),
    Family(
        "kafka_cluster_partition_atminisr", GAUGE, PER_PARTITION,
        "1 if it is led here with as many replicas in sync as that.", _PARTITIONS,
    ),
    Family("kafka_log_log_size", GAUGE, PER_PARTITION, "Bytes of the log on disk.", _PARTITIONS),
    Family("kafka_log_log_logstartoffset", GAUGE, PER_PARTITION, "The first offset.", _PARTITIONS),
    Family(
        "kafka_log_log_logendoffset", GAUGE, PER_PARTITION, "The offset after the last record.", _PARTITIONS
    ),
    Family("kafka_log_log_numlogsegments", GAUGE, PER_PARTITION, "Segments of the log.", _PARTITIONS),
    # Groups
    Family(
        "kafka_consumergroup_current_offset", GAUGE, ("consumergroup", *PER_PARTITION),
        "The committed offset.", "commits, see metrics.series.max",
    ),
    Family(
        "kafka_consumergroup_lag", GAUGE, ("consumergroup", *PER_PARTITION),
        "Offsets from the commit to the high watermark, as Kafka's tools count them; never below 0.",
        "commits, see metrics.series.max",
    ),
    Family(
        "kafka_consumergroup_current_offset_sum", GAUGE, ("consumergroup", "topic"),
        "Sum of the committed offsets.", "groups and topics",
    ),
    Family(
        "kafka_consumergroup_lag_sum", GAUGE, ("consumergroup", "topic"), "Sum of the lags.",
        "groups and topics",
    ),
    Family(
        "odradek_consumergroup_lag_seconds", GAUGE, ("consumergroup", "topic"),
        "Age of the oldest record that the group has not committed; 0 when it has committed all.",
        "groups and topics",
    ),
    Family("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of the group.", "groups"),
    Family(
        "odradek_consumergroup_offsets_past_end", GAUGE, ("consumergroup",),
        "Commits beyond the end of a log, which have a lag of 0.", "groups",
    ),
    Family(
        "odradek_consumergroup_partitions_without_commit", GAUGE, ("consumergroup",),
        "Partitions that members of the group have, and of which it has no commit: they have no lag.",
        "groups",
    ),
    Family(
        "kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, (),
        "Groups that this node coordinates.",
    ),
    *(
        Family(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}", GAUGE, (),
            f"Those in the state {name}.",
        )
        for state, name in (
            ("preparingrebalance", "PreparingRebalance"),
            ("completingrebalance", "CompletingRebalance"),
            ("stable", "Stable"),
            ("empty", "Empty"),
            ("dead", "Dead"),
        )
    ),
    Family(
        "kafka_server_group_coordinator_metrics_offset_count", GAUGE, (),
        "Offsets that the groups of this node have committed.",
    ),
    Family(
        "kafka_server_group_coordinator_metrics_classic_group_count", GAUGE, ("state",),
        "Groups of the classic protocol at this node.", "5",
    ),
    *(
        Family(f"{DESCRIPTION_COUNTS}_{name}_total", COUNTER, (), doc)
        for name, doc in (
            ("set_success", "Descriptions of topologies that were stored."),
            ("set_error", "Descriptions of topologies that the store has not taken."),
            ("get_success", "Descriptions of topologies that were looked for."),
            ("get_error", "Descriptions of topologies that could not be read."),
            ("delete_success", "Deletions of descriptions of topologies."),
            ("delete_error", "Deletions of descriptions of topologies that have failed."),
            ("cleanup_eligible", "Groups without members and offsets, of which the description went."),
        )
    ),
    # Share groups
    Family(
        "odradek_sharegroup_lag", GAUGE, ("group", *PER_PARTITION),
        "Records that are not done with: from where they begin to the high watermark, without those that are "
        "acknowledged or archived. Of partitions that this node leads and whose states it keeps.",
        "share partitions, see metrics.series.max",
    ),
    Family(
        "kafka_server_sharepartitionmetrics_inflightmessagecount", GAUGE, ("group", *PER_PARTITION),
        "Records between the first that is not done with and the last that was given out.",
        "share partitions that are read, see metrics.series.max",
    ),
    Family(
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", COUNTER, ("group", *PER_PARTITION),
        "Records whose locks have run out before an acknowledgement came.",
        "share partitions that are read, see metrics.series.max",
    ),
    Family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total", COUNTER, ("acktype",),
        "Records that were acknowledged: Accept, Release, Reject, Renew.", "4",
    ),
    Family(
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", COUNTER, ("group",),
        "Dead letters that were written.", "groups with a dead letter queue, see metrics.series.max",
    ),
    Family(
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", COUNTER, ("group",),
        "Attempts to write dead letters, of adjoining records together.",
        "groups with a dead letter queue, see metrics.series.max",
    ),
    Family(
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total", COUNTER, ("group",),
        "Dead letters of adjoining records that were given up after an attempt to write them.",
        "groups with a dead letter queue, see metrics.series.max",
    ),
    Family(
        "odradek_sharegroup_deadletters_lost_total", COUNTER, ("group", "reason"),
        "Records that were archived without a dead letter, though the group has a queue. The log says why.",
        "groups with a dead letter queue, see metrics.series.max",
    ),
    Family(
        "odradek_sharegroup_deadletters_waiting", GAUGE, (),
        "Dead letters of adjoining records that wait to be written.",
    ),
    Family(
        "kafka_server_sharesessioncache_sharesessionscount", GAUGE, (), "Share sessions: readers of share "
        "groups at this node.",
    ),
    Family(
        "kafka_server_sharesessioncache_sharepartitionscount", GAUGE, (), "Partitions in share sessions.",
    ),
    # Transactions and sessions
    Family("odradek_transactions_open", GAUGE, (), "Open transactions that this node coordinates."),
    Family(
        "kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max", GAUGE, (),
        "Milliseconds since the oldest open transaction began; 0: none is open.",
    ),
    Family(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, (), "Fetch sessions (KIP-227)."
    ),
    Family(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE, (),
        "Partitions in fetch sessions.",
    ),
    # Clients
    Family(
        CLIENT_FAMILY, UNTYPED, ("client_id", "client_instance_id", "those of the metric"),
        "What the client has pushed last about itself (KIP-714), for two of its intervals. A sum is what was "
        "added since its push before; of a histogram there are a sum and a count. `org.apache.kafka.` is "
        "left out of its name.", "5,000",
    ),
    # Disks
    Family(
        "odradek_log_dir_free_bytes", GAUGE, ("dir",),
        "Free bytes of the directory's file system, read every ten seconds.",
        "data directories",
    ),
    Family(
        "odradek_log_dir_total_bytes", GAUGE, ("dir",), "Bytes of the directory's file system.",
        "data directories",
    ),
    Family(
        "odradek_log_dir_space_age_seconds", GAUGE, ("dir",),
        "How old free and total bytes are; it grows while a mount hangs.", "data directories",
    ),
    Family(
        "odradek_log_dir_seconds_until_full", GAUGE, ("dir",),
        "Seconds until nothing is free, if it goes on as in the last day, or since the start. Not there in "
        "the first hour, and where the disk does not fill.", "data directories",
    ),
    Family(
        "odradek_log_dir_used_bytes", GAUGE, ("dir",),
        "Bytes of the logs in the directory, without copies that are moving there.", "data directories",
    ),
    Family(
        "odradek_log_dir_online", GAUGE, ("dir",), "0 for a directory that has failed.", "data directories"
    ),
    Family(
        "odradek_flush_seconds", HISTOGRAM, (),
        "Seconds of syncs that answers wait for, or flush.ms asks for: a write of the flush journal is one, "
        "and so are the partitions that a worker syncs together.",
    ),
    Family("odradek_compaction_seconds_total", COUNTER, (), "Seconds of compactions that are done."),
    Family(
        "odradek_compaction_bytes_total", COUNTER, (),
        "Bytes that these have read, also for their index of keys.",
    ),
    Family(
        "odradek_compaction_dirty_ratio_max", GAUGE, (),
        "Of the compacted logs the largest part, before the active segment, that is not compacted yet.",
    ),
    Family(
        "odradek_throttle_seconds_total", COUNTER, ("quota",),
        "Seconds that clients were told to wait because of quotas for produce, fetch, request (processor "
        "time) and controller (partitions made and deleted). Of several the longest wait holds a client.",
        "4",
    ),
    # The process
    Family("odradek_ready", GAUGE, (), "1 if /health/ready would say that clients are served, else 0."),
    Family(
        "odradek_loop_late_seconds", GAUGE, (),
        "How late the event loop was at worst, of looks twice a second in the last minute.",
    ),
    Family("process_cpu_seconds_total", COUNTER, (), "Processor time of the process."),
    Family("process_resident_memory_bytes", GAUGE, (), "Memory of the process."),
    Family("process_virtual_memory_bytes", GAUGE, (), "Address space of the process."),
    Family("process_open_fds", GAUGE, (), "Open file descriptors."),
    Family("process_max_fds", GAUGE, (), "The limit of open file descriptors."),
    Family("process_start_time_seconds", GAUGE, (), "When the process began, since 1970."),
    *(
        Family(f"{LINUX_DISK}{name}", GAUGE, (), doc)
        for name, doc in (
            ("read_bytes", "Bytes that the process has caused to be read from disks, as Linux counts."),
            ("write_bytes", "Bytes that the process has caused to be written to disks."),
            ("rchar", "Bytes that the process has read, also from caches and connections."),
            ("wchar", "Bytes that the process has written, also to caches and connections."),
            ("syscr", "System calls of the process that read."),
            ("syscw", "System calls of the process that write."),
            ("cancelled_write_bytes", "Bytes of files that were deleted or cut before the write."),
        )
    ),
    Family("odradek_build_info", GAUGE, ("version", "python"), "1; the version of the broker."),
    Family(
        "odradek_worker_info", GAUGE, ("worker",),
        "1; the number of this worker (odradek.workers), from 0 on. Only workers have it.",
    ),
    Family(
        "odradek_metrics_series_omitted", GAUGE, ("family",),
        "Series that are left out of a family, because there are more than metrics.series.max, or 5,000 of "
        "clients.", "families of partitions, of commits and of clients",
    ),
)  # fmt: skip

FAMILY: Final = {family.name: family for family in FAMILIES}
