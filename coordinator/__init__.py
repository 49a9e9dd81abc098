"""State machines over a log: groups, transactions, cluster metadata. A decision is a value.

In reading order: `effects.py` (what a machine decides), `log.py` (the log under it), `runtime.py` (runs the
machines of an internal topic), then by story: `cluster` (metadata), `groups`, `streams`, `transactions`; last
`group_machine.py` (one partition of `__consumer_offsets`, with groups of all types) and
`group_coordinator.py` (all its partitions that this node leads). `streams` knows `groups`, each of them may
know `cluster`, and no other story knows another.
"""
