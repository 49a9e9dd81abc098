"""A node's side of KRaft (KIP-500, KIP-595, KIP-631): it is a broker of controllers that Apache Kafka runs.

In reading order: `metadata_fetcher.py` (which controller leads, and its metadata log), `broker_lifecycle.py`
(the node registers, sends heartbeats, and asks to be let go), `directory_assignments.py` (in which log
directories its replicas are).

All of it is pure: a driver with connections and a clock sends the requests and hands in the responses.
"""
