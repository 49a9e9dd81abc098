"""Clients of other languages, as they are published, against the broker."""
