"""The setting of kafka-python that tests change, in one place: how soon consumers refresh the metadata."""

import sys

REFRESH_MS = 1000
"""metadata.max.age of consumers. kafka-python 3.0.12 forgets, now and then, a subscription made while a
Metadata request is on its way (docs/clients.md), and with its own five minutes a test would wait so long.
`subscriptions_kept.py` of `compat_tests/kafka_python_suite` says why."""


def refresh_metadata_soon() -> None:
    """Applies to all consumers of this process that do not say their own. Does nothing before kafka-python is
    imported, which most files of tests never do."""
    group = sys.modules.get("kafka.consumer.group")
    if group is not None:
        group.KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = REFRESH_MS
