"""Compaction: of each key the last record stays. To be read in this order:

`cleaner` (which log is due, how far, and putting cleaned segments in place), `run` (one round: reads sealed
segments and writes cleaned ones, in any process), `_cleaning` (compiled: the loops over records).
"""
