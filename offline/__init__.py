"""Tools for data directories that no broker uses; the broker does not import them.

`check.py` (`odradek check`) checks whole directories (`directories.py`): `check_files.py` for the files of
each, `check_partition.py` and `repair_partition.py` for its partitions, `report.py` for the output. `dump.py`
(`odradek dump`) shows files. `import_log.py` (`odradek import-log`) imports topics of Kafka, with
`kraft_settings.py` (their settings) and `convert_segment.py` (old message formats).
"""
