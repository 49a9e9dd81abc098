"""TLS, SASL, ACLs, quotas and administration, by real clients and tools."""
