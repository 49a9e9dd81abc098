"""Client metrics (KIP-714): `subscriptions.py`, and `clients.py` with the last values of each client."""
