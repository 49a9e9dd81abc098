"""The command line: one module for each command, imported when it is used.

In reading order: `main.py` (finds the command), `command.py` (what a command is), `layout.py` (help texts).
`serve.py` starts a broker; `users.py`, `check.py`, `dump.py` and `import_log.py` are for data directories
that no broker uses; `spark.py` leads to the jobs on Spark.
`produce.py` and `consume.py` have records: `reading_range.py` (where to begin and end), `record_format.py`
and `record_json.py` (how they look).
`groups.py` looks at groups, `group_changes.py` changes them; `transactions.py` and `producers.py` show who
writes.
"""
