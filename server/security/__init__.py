"""Who is let in: TLS, key stores, SASL, the authorizer, admission."""
