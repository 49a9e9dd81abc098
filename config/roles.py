"""Whether a node is alone or belongs to a cluster.

A node joins the cluster of the controllers that `controller.quorum.bootstrap.servers` or
`controller.quorum.voters` names, with `process.roles=broker`. Without controllers, or with itself as the
only one (`broker,controller`), it is a node alone. Odradek has no controllers of its own: these are Apache
Kafka's.

Source: Kafka's KafkaConfig.validateValues, release 4.3.
"""

from collections.abc import Mapping
from typing import Any

from odradek.config.config_error import ConfigError

__all__ = ["BOOTSTRAP_SERVERS", "VOTERS", "joins_cluster"]

BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
VOTERS = "controller.quorum.voters"


def joins_cluster(values: Mapping[str, Any], node_id: int) -> bool:
    """Whether a node with these values of options belongs to a cluster. ConfigError: it would be a
    controller, or Kafka would not know what it is."""
    roles = frozenset(values["process.roles"] or ())
    voters, servers = values[VOTERS], values[BOOTSTRAP_SERVERS]
    if "controller" in roles:
        _check_only_controller(roles, voters, servers, node_id)
        return False
    if not voters and not servers:
        return False
    if not roles:
        raise ConfigError(
            f"{VOTERS if voters else BOOTSTRAP_SERVERS} names controllers and process.roles is missing: "
            "set process.roles=broker to join their cluster, or leave the controllers out."
        )
    return True


def _check_only_controller(
    roles: frozenset[str], voters: tuple[str, ...], servers: tuple[str, ...], node_id: int
) -> None:
    if "broker" not in roles:
        raise ConfigError(
            "process.roles=controller cannot be served, as Odradek has no controllers of its own: "
            "let Apache Kafka run the controllers, and set process.roles=broker."
        )
    others = [voter for voter in voters if voter.partition("@")[0].strip() != str(node_id)]
    if others or len(servers) > 1:
        named = ",".join(others) if others else ",".join(servers)
        raise ConfigError(
            f"process.roles=broker,controller beside the controllers {named} cannot be served, as Odradek "
            "has no controllers of its own: let Apache Kafka run the controllers, and set "
            "process.roles=broker; a node alone names no other controller."
        )
