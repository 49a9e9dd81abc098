"""An authorizer for tests: it allows what it was told, and remembers what it was asked."""

from __future__ import annotations

from odradek.apis.access import ANY, resources


class Granting:
    """`allows(operation, resource_type, name)` decides. `view()` has the names of topics for their ids."""

    def __init__(self, view, allows):
        self._view = view
        self.allows = allows
        self.asked = []
        self.asked_quietly = []

    @classmethod
    def only(cls, node, *allowed):
        """Allows these (operation, resource type, name) and nothing else."""
        return cls(lambda: node.machine.view, lambda *wanted: wanted in allowed)

    @classmethod
    def all_but(cls, node, *refused):
        return cls(lambda: node.machine.view, lambda *wanted: wanted not in refused)

    def refused(self, connection, needs, request):
        return self._decide(resources(needs, request), self.asked)

    def hidden(self, connection, wanted):
        return self._decide(wanted, self.asked_quietly)

    def _decide(self, resources, asked):
        wanted = [(*kind, name) for kind, names in resources.items() for name in names]
        asked += wanted
        return frozenset(one for one in wanted if self._refuses(*one))

    def _refuses(self, operation, resource_type, name):
        if name is ANY:
            name = "any"
        if isinstance(name, bytes):
            name = self._view().topic_names.get(name)
            if name is None:
                return False
        return not self.allows(operation, resource_type, name)
