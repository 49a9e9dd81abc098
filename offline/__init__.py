"""Tools over data directories that no broker serves; no broker imports them.

`check.py` (`odradek check`) goes over whole directories (`directories.py`): `check_files.py` for the files of
each, `check_partition.py` and `repair_partition.py` for its partitions, `report.py` for what is written.
`dump.py` (`odradek dump`) shows files. `import_log.py` (`odradek import-log`) takes topics of Kafka in, with
`kraft_settings.py` (their settings) and `convert_segment.py` (old message formats).
"""
