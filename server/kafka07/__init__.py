"""A listener for clients of Kafka 0.7. Imported only where `listener.security.protocol.map` has KAFKA_07.

In reading order: `reader.py` (the frames of a connection, one request after the other), `handlers.py` (what a
request does), `producing.py` (message sets become batches of today), `positions.py` (the byte positions of
one log), `position_store.py` (where they are kept), `streaming.py` (the bytes of a log from a position on),
`listening.py` (puts it together). `wire/kafka07` has the formats.

A position of 0.7 is a number of bytes since the beginning of a log, as if the log were a file of 0.7. The
sizes of stored records in that form are added up, once, as far as somebody has asked (`positions.py`); a
table beside the metadata has the sums, and is on the disk before a position that needs it is told. So
positions stay what they are over restarts, kills, rolls, retention, compaction and conversions.
"""
