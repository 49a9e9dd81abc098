"""Metrics, health and details of a broker, over HTTP and for programs.

In reading order: `families.py` (the table of all metrics), `observed.py` (the broker), `sources.py` (reads
their values), `lag.py` (how far groups are behind), `disk_space.py` (free bytes, read in threads),
`new_connections.py` (their rate), `replication.py` (what a node leads and follows), `clients.py` (what they
push), `exposition.py` (the text that Prometheus reads), `details.py` (health, and JSON for `/admin`),
`endpoint.py` (HTTP), `page.py` (makes docs/metrics.md), `boards.py`, `rules.py` and `monitoring_files.py`
(what `odradek monitoring` writes); `broker_metrics.py` is the form for programs. A broker without
`--metrics` imports nothing of it.
"""
