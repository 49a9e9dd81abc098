"""What both ends of a secured connection need: key stores, contexts of TLS, and the client's side of SASL."""
