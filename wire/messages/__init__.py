"""Every message of the protocol, declared once for all of its versions; one module per API."""
