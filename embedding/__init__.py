"""Brokers and clusters in a program or in its tests, started as threads or as child processes."""
