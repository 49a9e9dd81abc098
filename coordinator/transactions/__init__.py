"""Transactions: the state machine over `__transaction_state`.

In reading order: `commands.py` (requests and their responses, as values), `state.py` (the states and what may
follow which), `record_codec.py` (records of `__transaction_state`), `settings.py`, `endings.py` (markers that
are missing), `queries.py` (questions), `machine.py` (one partition), `coordinator.py` (all partitions that
this node leads).
"""
