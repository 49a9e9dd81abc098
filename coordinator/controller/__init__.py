"""Decisions of a controller: what is asked for becomes records of the metadata log.

Its state is a `MetadataImage`, which the records make, live and at a start. One voter: what it has appended
is committed. A decision reads one immutable `ClusterView`; it returns metadata records, without their
versions, and the response.

In reading order: `record_versions.py` (the version of a record at a metadata.version), `log.py` (what a
metadata log can do), `records.py` (facts as records), `draft.py` (a change, and its records), `machine.py`
(the controller), `snapshot.py` (all facts of a moment), `bootstrap.py` (the first records of a cluster).

Then brokers and partitions: `batch.py` (records of one decision, and the partitions as they will be),
`partition_change.py` (how one partition changes: leader, ISR, eligible leaders, reassignment),
`elections.py` (which partitions change when a broker comes or goes), `broker_sessions.py` (which brokers
have been heard of), `brokers.py` (registration, heartbeats, fencing), `in_sync.py` (changes that leaders
request), `directories.py` (where replicas are, and disks that fail), `reassignment.py` (replicas move to
other brokers).
"""
