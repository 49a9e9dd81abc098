"""Security at the sockets: who is let in."""
