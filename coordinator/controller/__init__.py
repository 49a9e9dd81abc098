"""Decisions of a controller: what is asked for becomes records of the metadata log.

Its state is a `MetadataImage`, which the records make, live and at a start. One voter: what it has appended
is committed.

In reading order: `record_versions.py` (the version of a record at a metadata.version), `log.py` (what a
metadata log can do), `records.py` (facts as records), `draft.py` (a change, and its records), `machine.py`
(the controller), `snapshot.py` (all facts of a moment), `bootstrap.py` (the first records of a cluster).
"""
