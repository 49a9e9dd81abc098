"""One partition and its files, beginning with the bytes of a batch. To be read in this order:

`batches` (headers on the disk, `scan`), `slices` (the result of a read), `indexes` and `transaction_index`,
`segment_paths`, `segment_file`, `segment_indexes` and `segment` (a file with its indexes, and its parts),
`_staging` (compiled: checks a batch and stages it), `transactions` and `producer_state`, `leader_epochs`,
`log_files`, `staging`, `durability`, `log_reader` and `scan_checkpoint` (the parts of a log), `log` (the
segments of a partition), `preparation` (of records of clients), `availability`, `appends` (the appends of
batches and of markers), `retention`, `time_search`, `flush_journal` (makes many partitions durable with one
sync) and `flushing` (the parts of a partition), `partition` (the interface for others).
"""
