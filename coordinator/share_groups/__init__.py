"""Share groups (KIP-932): members that share partitions record by record.

In reading order: `commands.py` (requests to a group and their answers, as values, and what a group asks the
share coordinator), `assignor.py` (who reads which partitions), `group.py` (data), `membership.py` (rules for
members), `partition_states.py` (the states of share partitions: set up, altered, deleted). They work in
`coordinator/group_machine.py`, and share sessions, settings and records with `coordinator/groups`.
"""
