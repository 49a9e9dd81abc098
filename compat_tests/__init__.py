"""Unmodified clients, Kafka's own tools and the real broker against Odradek."""
