"""Everything at once while the broker is killed."""
