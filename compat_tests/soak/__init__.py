"""Producers, readers and groups of three client libraries at once while the broker dies and comes back."""
