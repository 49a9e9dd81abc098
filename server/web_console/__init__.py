"""The web console of a broker (`--console`): its process, and what the broker tells that process alone.

Imported only where `odradek.console.listen` is set. `choosing.py` decides how the console reaches the broker,
and whether it may be open at its address; `console_process.py` holds the socket, and starts and ends the
process; `admin.py` answers the console at a Unix socket: connections (`connection_rows.py`), writers
(`writers.py`), segments (`segment_rows.py`), slow requests, and rates of the last hour (`history.py`).
"""
