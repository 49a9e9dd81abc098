"""Clients that authenticate, with what they know and with what they do not."""
