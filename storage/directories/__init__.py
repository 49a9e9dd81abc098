"""All partitions of a broker and the data directories in which they lie. To be read in this order:

`data_directory` (one of `log.dirs`, with its checkpoint files), `places` (the table that all share),
`opening` (a start), `upkeep` (retention, removing files, expiry of producers), `checkpointing`,
`failing_disks`, `moving` and `relocation` (of partitions between directories), `truncation`, `creating`,
`compaction_view` (what compaction uses of all this), `store` (holds these parts; starts and stops; what
others see).
"""
