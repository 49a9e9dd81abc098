"""Coordinators of groups, transactions and shares, and the logs that they write."""
