"""Security at the sockets of a broker: TLS, SASL, the authorizer, admission."""
