"""The APIs of a controller: in which module of `apis` each is declared."""

from __future__ import annotations

from collections.abc import Mapping

CONTROLLER_MODULES: Mapping[int, str] = {
    1: "controller.metadata_log",
    17: "sasl",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    29: "acls",
    30: "acls",
    31: "acls",
    32: "describe_configs",
    33: "alter_configs",
    36: "sasl",
    37: "create_partitions",
    38: "delegation_tokens",
    39: "delegation_tokens",
    40: "delegation_tokens",
    43: "controller.partitions",
    44: "alter_configs",
    45: "controller.partitions",
    46: "controller.partitions",
    49: "client_quotas",
    51: "scram_credentials",
    55: "controller.quorum",
    56: "controller.partitions",
    57: "update_features",
    58: "controller.envelope",
    59: "controller.metadata_log",
    60: "controller.quorum",
    62: "controller.brokers",
    63: "controller.brokers",
    64: "controller.brokers",
    67: "controller.producer_ids",
    73: "controller.partitions",
    80: "quorum",
    81: "quorum",
    94: "quorum",
}
"""API key -> module."""
