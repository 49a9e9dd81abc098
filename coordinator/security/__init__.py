"""Rules and machines of security: who may do what, and how much."""
