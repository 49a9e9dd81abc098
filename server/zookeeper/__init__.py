"""A broker in ZooKeeper, for the oldest clients and tools. Imported only with `zookeeper.connect`.

In reading order: `session.py` (the connection, and who may tell of it), `secured.py`, `tls.py` and
`handler.py` (its TLS and its login), `registration.py` (the broker's own node), `controllership.py` (the one
broker that writes for the cluster), `survey.py` (what is in ZooKeeper already), `tools.py` (what old tools
ask for in nodes), `upkeep.py` (the thread that does all of it), `offsets.py` (what groups of the oldest
protocol commit), `oldest.py` (the nodes of Kafka 0.7), `own_requests.py` (requests of the broker to itself),
`opening.py` and `joining.py` (the start, before and after the broker serves). `coordinator/zookeeper` has the
contents of the nodes.

Our own metadata decide. ZooKeeper gets a copy, and what tools write there becomes a request: when ZooKeeper
is lost, the broker serves on, and the copy is made anew when it is back.
"""
