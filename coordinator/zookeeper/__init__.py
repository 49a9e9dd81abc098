"""ZooKeeper's directories, as clients and tools of Kafka before 0.9 and 2.x read and write them.

In reading order: `nodes.py` (what is in each node), `projection.py` (which nodes there have to be for a view
of the cluster, and what changes between two of them). Pure: `server/zookeeper` has the session.
"""
