"""Record batches on disk, in rooms of which each knows only those before it.

`config`, `disk`, `checkpoints`, `throttle` and `_reading` serve all; then `log` (a partition and its files),
`recovery` (what a start finds of it) and `compaction`, which are strangers to each other, and `directories`
(all partitions and where they lie). Imports `wire` only.
"""
