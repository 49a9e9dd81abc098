"""APIs of a controller: those of brokers and of their replicas, of the metadata log, and an Envelope around
requests of clients.

`apis/table.py` leads to them. In reading order: `parts.py` (the parts of a controller), `deciding.py` (a
decision becomes records, then the response), `brokers.py`, `partitions.py`, `producer_ids.py`,
`metadata_log.py` (readers of the log), `quorum.py`, `envelope.py`.
"""
