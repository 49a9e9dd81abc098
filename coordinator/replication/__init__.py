"""Replication: the pure machines of a partition's replicas, on the leader's side and on the follower's.

In reading order: `values.py` (what the machines see of logs, partitions and brokers), `transitions.py` (what
a view makes of a replica), `in_sync.py` (the ISR and its pending change), `replica_state.py` (the leader's
side: followers, high watermark, ISR, acks=all), `read_replica.py` (which replica a consumer reads from),
`alter_partition.py` (changes of ISRs on their way to the controller), `truncation.py` (where a log parts from
its leader's), `fetch_session.py` (a follower's fetch session), `replication_quota.py` (the throttle of
replicas that move), `replica_fetcher.py` (the follower's side for one leader), `replica_fetchers.py` (for all
leaders).
"""
