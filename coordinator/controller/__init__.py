"""Decisions of the controller: what is asked for becomes records of the metadata log.

A decision reads one immutable `ClusterView` and returns metadata records, without their versions, and the
response. It changes no metadata: someone else appends the records as one batch, replays them into the
`MetadataImage`, publishes the next view, and then responds.

In reading order: `batch.py` (records of one decision, and the partitions as they will be),
`partition_change.py` (how one partition changes: leader, ISR, eligible leaders, reassignment),
`elections.py` (which partitions change when a broker comes or goes), `broker_sessions.py` (which brokers
have been heard of), `brokers.py` (registration, heartbeats, fencing), `in_sync.py` (changes that leaders
request), `directories.py` (where replicas are, and disks that fail), `reassignment.py` (replicas move to
other brokers).
"""
