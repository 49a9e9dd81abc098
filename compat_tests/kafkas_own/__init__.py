"""Apache Kafka's own tests, with brokers of ours under them."""
