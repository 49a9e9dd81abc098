"""The workers of a broker (`odradek.workers`): `run.py` begins with the configuration, `supervisor.py` is the
parent of their processes, `first_worker.py` the one that is the controller, too. `resizing.py` is a start
with another number of them, `lone_node.py` one with a node alone before or after."""
