"""Clusters of several processes under Apache Kafka's own controllers."""
