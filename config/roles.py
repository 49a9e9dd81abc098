"""The role of a node: alone, a broker of a cluster, a worker, or a controller.

A node with `process.roles=broker` joins the cluster of the controllers in
`controller.quorum.bootstrap.servers` or `controller.quorum.voters`. Without controllers, or with itself as
the only one (`broker,controller`), it is a node alone. With `process.roles=controller` it is the only
controller of its cluster: several, which take the place of one another, are Apache Kafka's. A worker is a
broker of the cluster that one machine has with `odradek.workers` (`config/workers.py`).

Source: Kafka's KafkaConfig.validateValues, release 4.4.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.config.config_error import ConfigError

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
VOTERS: Final = "controller.quorum.voters"


class Role(Enum):
    """See the module."""

    ALONE = "alone"
    BROKER = "broker"
    WORKER = "worker"
    CONTROLLER = "controller"


def role_of(values: "BrokerValues", node_id: int) -> Role:
    """The role of a node with these values of options. ConfigError: it would be one of several controllers,
    or its role is not defined."""
    roles = frozenset(values["process.roles"] or ())
    voters, servers = values[VOTERS], values[BOOTSTRAP_SERVERS]
    if "controller" in roles:
        _check_only_controller(roles, voters, servers, node_id)
        return Role.ALONE if "broker" in roles else Role.CONTROLLER
    if not voters and not servers:
        return Role.ALONE
    if not roles:
        raise ConfigError(
            f"{VOTERS if voters else BOOTSTRAP_SERVERS} has controllers, but process.roles is missing: "
            "set process.roles=broker to join their cluster, or remove the controllers."
        )
    return Role.BROKER


def _check_only_controller(
    roles: frozenset[str], voters: tuple[str, ...], servers: tuple[str, ...], node_id: int
) -> None:
    others = [voter for voter in voters if voter.partition("@")[0].strip() != str(node_id)]
    if not others and len(servers) <= 1:
        return
    named = ",".join(others) if others else ",".join(servers)
    if "broker" in roles:
        raise ConfigError(
            f"process.roles=broker,controller beside the controllers {named} is not supported: run several "
            "controllers with Apache Kafka, and set process.roles=broker; a node alone has no other "
            "controllers."
        )
    raise ConfigError(
        f"process.roles=controller beside the controllers {named} is not supported: run several controllers "
        "with Apache Kafka; a controller of Odradek is the only one of its cluster."
    )
