"""kafka-python's own integration tests, from its source package, against the broker."""
