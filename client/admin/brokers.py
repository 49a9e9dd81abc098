"""Brokers that have left for good."""

from odradek.client.admin.asking import ask_controller
from odradek.client.client_error import refusal
from odradek.client.cluster import Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest


def unregister_broker(cluster: Cluster, broker: int) -> None:
    """The controllers forget the broker. ClientError if they refuse it."""
    response = ask_controller(cluster, UnregisterBrokerRequest(broker_id=broker))
    if response.error_code != ErrorCode.NONE:
        raise refusal(f"unregistering broker {broker}", response.error_code, response.error_message)
