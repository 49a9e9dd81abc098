"""The broker as a process: its loop, its log, its health, and the children that it starts."""
