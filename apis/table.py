"""The one table of APIs: in which module of this package each is declared.

ApiVersions advertises what is here. Modules and messages of an API are imported with the first request for
it, so that a broker can start in 0.1 s. What is known without them is in the index of `wire/messages`: names
and versions. All else is in the declaration with which a module ends (`apis/declaration.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from odradek.apis.audit import Audited
from odradek.apis.declaration import Api, Forwarding, Served
from odradek.apis.node import ApiParts
from odradek.wire.messages import versions_of

if TYPE_CHECKING:
    from odradek.apis.api import Handler
    from odradek.apis.node import ApiSettings, NodeParts

# By who asks, in the order in which clients do: `server/background/warm_up.py` prepares all but the last.

RECORDS = {
    18: "api_versions",
    3: "metadata",
    0: "produce",
    1: "fetch",
    2: "list_offsets",
}
GROUPS = {
    10: "find_coordinator",
    9: "offset_fetch",
    11: "join_group",
    14: "sync_group",
    12: "heartbeat",
    8: "offset_commit",
    13: "leave_group",
    68: "consumer_groups",
}
TRANSACTIONS = {
    22: "init_producer_id",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    28: "txn_offset_commit",
}
ADMINISTRATION = {
    19: "create_topics",
    20: "delete_topics",
    37: "create_partitions",
    32: "describe_configs",
    44: "alter_configs",
    33: "alter_configs",
    60: "metadata",
    75: "metadata",
    74: "list_config_resources",
    21: "delete_records",
    23: "offset_for_leader_epoch",
    35: "describe_log_dirs",
    61: "describe_producers",
    15: "describe_groups",
    16: "list_groups",
    69: "consumer_groups",
    42: "delete_groups",
    47: "offset_delete",
    65: "describe_transactions",
    66: "list_transactions",
}
SELDOM = {
    17: "sasl",
    27: "write_txn_markers",
    29: "acls",
    30: "acls",
    31: "acls",
    34: "alter_replica_log_dirs",
    36: "sasl",
    38: "delegation_tokens",
    39: "delegation_tokens",
    40: "delegation_tokens",
    41: "delegation_tokens",
    43: "elect_leaders",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    48: "client_quotas",
    49: "client_quotas",
    50: "scram_credentials",
    51: "scram_credentials",
    55: "quorum",
    57: "update_features",
    64: "quorum",
    71: "client_metrics",
    72: "client_metrics",
    76: "share_groups",
    77: "share_groups",
    78: "share_fetch",
    79: "share_acknowledge",
    80: "quorum",
    81: "quorum",
    83: "share_state",
    84: "share_state",
    85: "share_state",
    86: "share_state",
    87: "share_state",
    88: "streams_groups",
    89: "streams_groups",
    90: "share_groups",
    91: "share_groups",
    92: "share_groups",
    93: "streams_groups",
    94: "quorum",
}
MODULES: Mapping[int, str] = RECORDS | GROUPS | TRANSACTIONS | ADMINISTRATION | SELDOM
"""API key -> module."""


def declared(api_key: int, modules: Mapping[int, str] = MODULES) -> Api:
    """The declaration of one of Kafka's APIs, from its module; KeyError for one that is not served."""
    module = import_module(f"odradek.apis.{modules[api_key]}")
    apis: Iterable[Api] = module.APIS if hasattr(module, "APIS") else (module.API,)
    (found,) = [api for api in apis if api.request.api_key == api_key]
    return found


class Apis(Mapping[int, Served]):
    """Every API by its key, with its handler of one node, which is made when it is first used."""

    def __init__(
        self,
        node: NodeParts,
        settings: ApiSettings,
        added: Iterable[Api] = (),
        modules: Mapping[int, str] = MODULES,
    ) -> None:
        """`added` are APIs beside those of Kafka; they may also replace one of Kafka's."""
        self._modules = modules
        self._added = {api.request.api_key: api for api in added}
        self._versions = {key: versions_of(key) for key in modules}
        self._versions |= {key: api.versions for key, api in self._added.items()}
        self._parts = ApiParts(node, settings, self._versions)
        self._served: dict[int, Served] = {}

    def __getitem__(self, api_key: int) -> Served:
        served = self._served.get(api_key)
        if served is None:
            served = self._serve(self._added.get(api_key) or declared(api_key, self._modules))
            self._served[api_key] = served
        return served

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def _serve(self, api: Api) -> Served:
        forward = self._parts.node.forward
        handler: Handler
        if forward is not None and api.forwarded is Forwarding.AS_IT_COMES:
            from odradek.apis.forwarding import Forwarded

            handler = Forwarded(api, forward)
            api = replace(api, needs=())
        else:
            handler = api.make(self._parts)
        if api.changes:
            handler = Audited(handler)
        return Served(api, handler, getattr(handler, "prefix", None))
