"""A blocking Kafka client, private: the Spark formats and the command line use it, users have clients.

In reading order: `settings.py` (options with Kafka's names), `client_error.py`, `secured.py` (TLS),
`connection.py` (one broker), `patience.py`, `cluster.py` (metadata, leaders, coordinators), `fetching.py`,
`reading.py` and `stored_records.py` (many partitions, as Python objects), `partitioning.py`, `gathering.py`,
`transaction_manager.py`, `producing.py`, `group_offsets.py`, `group_member.py` (with `member_settings.py`,
`membership.py`, `classic_member.py`, `range_assignor.py` and `consumer_member.py`), `admin` (what an
administrator asks and changes); `librdkafka_names.py` and `profiles.py` are for people, `progress.py` is a
line on a terminal.
"""
