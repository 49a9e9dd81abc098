"""Transactions with the programs that use them: Kafka's own, Streams, three libraries; and a checker."""
