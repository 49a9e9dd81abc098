"""PySpark with its unmodified Kafka connector against the broker."""
