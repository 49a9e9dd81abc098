"""Share groups (KIP-932): members that share partitions record by record.

In reading order: `assignor.py` (who reads which partitions), `group.py` (data), `commands.py` (what a group
asks the share coordinator), `membership.py` (rules for members), `partition_states.py` (the states of share
partitions: set up, altered, deleted). They work in `coordinator/group_machine.py`, and share sessions,
settings and records with `coordinator/groups`.
"""
