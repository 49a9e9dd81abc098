"""SASL: the exchange in which a client authenticates (`exchange.py`), and one module for each mechanism."""
