"""A cluster with ACLs, and a node without an authorizer: every client could do everything there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues
    from odradek.coordinator.cluster.view import ClusterView

UNPROTECTED: Final = "odradek.ignore.acls"
"""The option that lets a node serve in a cluster with ACLs."""


def refusal_of_acls(values: BrokerValues, view: ClusterView) -> str | None:
    """One sentence why a node with these options does not serve in the cluster; None: it does."""
    if values["authorizer.class.name"] or not view.has_acls or values[UNPROTECTED]:
        return None
    return (
        "The cluster has ACLs, and this node does not enforce them: every client may do everything "
        "here. Set authorizer.class.name as the other nodes have it, or "
        f"{UNPROTECTED}=true if that is meant."
    )
