"""Security at the sockets of a broker: who connects, and what he may do."""
