"""Sockets, the clock, the command line, background work; builds everything."""
