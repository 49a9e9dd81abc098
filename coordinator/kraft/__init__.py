"""A node's side of KRaft (KIP-500, KIP-595, KIP-631): it is a broker of controllers that Apache Kafka runs.

In reading order: `leader_finder.py` (which controller leads), `metadata_fetcher.py` (the metadata log is
followed), `broker_lifecycle.py` (the node registers, sends heartbeats, and asks to be let go).

All of it is pure: a driver with connections and a clock sends the requests and hands in the answers.
"""
