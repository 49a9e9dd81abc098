"""All partitions of a broker and their data directories. To be read in this order:

`data_directory` (one of `log.dirs`, with its checkpoint files), `places` (the table that these modules
share), `opening` (a start), `upkeep` (retention, removing files, expiry of producers), `checkpointing`,
`failing_disks`, `moving` and `relocation` (of partitions between directories), `truncation`, `creating`,
`store` (holds these parts; starts and stops; the interface for others, and for compaction).
"""
