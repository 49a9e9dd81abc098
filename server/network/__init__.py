"""Sockets: listeners, connections, the pipeline of requests, and connections to other brokers."""
