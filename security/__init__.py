"""Needs of both ends of a secured connection: key stores, contexts of TLS, the client's side of SASL."""
