"""One partition and its files, beginning with the bytes of a batch. To be read in this order:

`batches` (headers on the disk, `scan`), `slices` (the result of a read), `indexes` and `transaction_index`,
`segment_paths`, `segment_file`, `index_files`, `segment_indexes` and `segment` (a file with its indexes, and
its parts), `_staging` (compiled: checks a batch and stages it), `transactions` and `producer_state`,
`leader_epochs`, `scan_checkpoint` and `end_checkpoint` (they make the next start shorter), `retention`,
`log_files`, `staging`, `durability`, `log_reader` and `scan_checkpointing` (the parts of a log), `log` (the
segments of a partition), `validation` and `preparation` (of records of clients), `appends` (the appends of
batches and of markers), `availability`, `partition_retention`, `time_search`, `flush_journal` (makes many
partitions durable with one sync) and `flushing` (the parts of a partition), `partition` (the interface for
others).
"""
