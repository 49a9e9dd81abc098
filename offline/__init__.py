"""Tools over data directories that no broker serves; no broker imports them.

`check.py` (`odradek check`) goes over whole directories, with `check_partition.py` and `repair_partition.py`
for each partition; `dump.py` (`odradek dump`) shows files; `import_log.py` (`odradek import-log`) takes
topics of Apache Kafka in, with `kraft_settings.py` (their settings) and `convert_segment.py` (old message
formats).
"""
