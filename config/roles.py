"""Whether a node is alone or belongs to a cluster.

A node with `process.roles=broker` joins the cluster of the controllers in
`controller.quorum.bootstrap.servers` or `controller.quorum.voters`. Without controllers, or with itself as
the only one (`broker,controller`), it is a node alone. Odradek has no controllers of its own: they are Apache
Kafka's.

Source: Kafka's KafkaConfig.validateValues, release 4.3.
"""

from typing import TYPE_CHECKING, Final

from odradek.config.config_error import ConfigError

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
VOTERS: Final = "controller.quorum.voters"


def joins_cluster(values: "BrokerValues", node_id: int) -> bool:
    """Whether a node with these values of options belongs to a cluster. ConfigError: the node would be a
    controller, or its role is not defined."""
    roles = frozenset(values["process.roles"] or ())
    voters, servers = values[VOTERS], values[BOOTSTRAP_SERVERS]
    if "controller" in roles:
        _check_only_controller(roles, voters, servers, node_id)
        return False
    if not voters and not servers:
        return False
    if not roles:
        raise ConfigError(
            f"{VOTERS if voters else BOOTSTRAP_SERVERS} has controllers, but process.roles is missing: "
            "set process.roles=broker to join their cluster, or remove the controllers."
        )
    return True


def _check_only_controller(
    roles: frozenset[str], voters: tuple[str, ...], servers: tuple[str, ...], node_id: int
) -> None:
    if "broker" not in roles:
        raise ConfigError(
            "process.roles=controller is not supported, since Odradek has no controllers of its own: "
            "run the controllers with Apache Kafka, and set process.roles=broker."
        )
    others = [voter for voter in voters if voter.partition("@")[0].strip() != str(node_id)]
    if others or len(servers) > 1:
        named = ",".join(others) if others else ",".join(servers)
        raise ConfigError(
            f"process.roles=broker,controller beside the controllers {named} is not supported, since "
            "Odradek has no controllers of its own: run the controllers with Apache Kafka, and set "
            "process.roles=broker; a node alone has no other controllers."
        )
