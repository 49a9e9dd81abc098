"""Record batches on disk, in packages. Each package imports only packages that are listed before it.

`config`, `disk`, `checkpoints`, `throttle` and `_reading` serve all; then come `log` (a partition and its
files), `recovery` (opens a log after a crash) and `compaction`, which do not import each other, and
`directories` (all partitions and their directories). Imports `wire` only.
"""
