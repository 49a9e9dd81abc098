"""Compaction: the last record of each key stays. To be read in this order:

`plan` (which log is due, and how far), `run` (one round: reads sealed segments and writes cleaned ones, in
any process), `_cleaning` (compiled: its loops over records), `cleaner` (begins rounds of a store and puts
their segments in place).
"""
