"""Takes the place of a module that kafka-python's source package leaves out: how its fixtures run servers.

Only the external kind is needed, a server that somebody else runs.
"""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        """It runs already."""

    def start(self):
        """It runs already."""

    def stop(self):
        """Its owner stops it."""

    def close(self):
        """Its owner stops it."""


class SpawnedService:
    def __init__(self, *arguments, **options):
        raise RuntimeError("these tests run against a broker that is given by KAFKA_URI")
