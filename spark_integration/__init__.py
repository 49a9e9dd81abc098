"""Odradek and Spark: sources, sinks and jobs (see the README for what is there yet)."""
