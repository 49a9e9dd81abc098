"""Sockets, the clock, the options file, the command line, background work; builds everything."""
