"""For tests: `OdradekContainer`, a broker in Docker by testcontainers (`pip install odradek[testing]`)."""

from odradek.embedding.testing import OdradekContainer

__all__ = ["OdradekContainer"]
