"""Groups of Kafka Streams applications (KIP-1071).

In reading order: `topology.py` (the application's topology and the topics that it needs), `assignor.py` (who
gets which tasks), `reconciliation.py` (how a member gets from its tasks to its target), `group.py` (data),
`membership.py` (rules). They work in `coordinator/group_machine.py`, and share sessions, settings and records
with `coordinator/groups`.
"""
