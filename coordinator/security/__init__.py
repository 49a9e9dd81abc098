"""Rules and machines of security: who may do what, who is who, and how much of it."""
