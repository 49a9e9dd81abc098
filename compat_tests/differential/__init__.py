"""The same raw requests to Apache Kafka and to Odradek, their answers compared field by field."""
