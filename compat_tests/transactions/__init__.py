"""Transactions with the programs that use them: Kafka's own, Streams, three client libraries, and a checker."""
