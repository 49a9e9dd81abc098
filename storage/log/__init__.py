"""One partition and its files, from the bytes of a batch upwards. To be read in this order:

`batches` (headers on the disk, `scan`), `slices` (what a read hands out), `indexes` and `transaction_index`,
`segment_paths`, `segment_file`, `index_files`, `segment_indexes` and `segment` (a file with its indexes, and
its parts), `_staging` (compiled: checks a batch and stages it), `transactions` and `producer_state`,
`leader_epochs`, `scan_checkpoint` and `end_checkpoint` (what spares the next start work), `retention`, `log`
(the segments of a partition), `validation` and `preparation` (of what clients send), `appends`
(the two ways into a log), `time_search`,
`flush_journal` (makes many partitions durable at once), `partition` (what others see).
"""
