"""The test kit: what a test may do to a broker that no client can."""
