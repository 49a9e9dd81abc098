"""The workers of a broker (`odradek.workers`): `run.py` begins with the configuration, `supervisor.py` is the
parent of their processes, `first_worker.py` the one that is the controller, too."""
