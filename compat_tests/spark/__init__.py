"""PySpark with its own unmodified Kafka connector, batch and streaming, against the broker."""
