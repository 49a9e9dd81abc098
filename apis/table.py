"""The one table of APIs: in which module of this package each is declared, for brokers and for controllers.

ApiVersions advertises what is here. Modules and messages of an API are imported with the first request for
it, so that a broker can start in 0.1 s. What is known without them is in the index of `wire/messages`: names
and versions. All else is in the declaration with which a module ends (`apis/declaration.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple

from odradek.apis.audit import Audited
from odradek.apis.declaration import AnyApi, Declaration, Forwarding, Node, Served
from odradek.apis.node import HandlerParts
from odradek.wire.messages import versions_of

if TYPE_CHECKING:
    from odradek.apis.api import Handler
    from odradek.apis.node import ApiSettings


class Row(NamedTuple):
    """The modules that declare an API, in this package. "": nodes of this role do not serve it."""

    broker: str = ""
    controller: str = ""


def both(module: str) -> Row:
    """An API that has the same handler at a broker and at a controller."""
    return Row(module, module)


# By who asks, in the order in which clients do: `server/background/warm_up.py` prepares all but the last two.

RECORDS = {
    18: both("api_versions"),
    3: Row("metadata"),
    0: Row("produce"),
    1: Row("fetch", "controller.metadata_log"),
    2: Row("list_offsets"),
}
GROUPS = {
    10: Row("find_coordinator"),
    9: Row("offset_fetch"),
    11: Row("join_group"),
    14: Row("sync_group"),
    12: Row("heartbeat"),
    8: Row("offset_commit"),
    13: Row("leave_group"),
    68: Row("consumer_groups"),
}
TRANSACTIONS = {
    22: Row("init_producer_id"),
    24: Row("add_partitions_to_txn"),
    25: Row("add_offsets_to_txn"),
    26: Row("end_txn"),
    28: Row("txn_offset_commit"),
}
ADMINISTRATION = {
    19: both("create_topics"),
    20: both("delete_topics"),
    37: both("create_partitions"),
    32: both("describe_configs"),
    44: both("alter_configs"),
    33: both("alter_configs"),
    60: Row("metadata", "controller.quorum"),
    75: Row("metadata"),
    74: Row("list_config_resources"),
    21: Row("delete_records"),
    23: Row("offset_for_leader_epoch"),
    35: Row("describe_log_dirs"),
    61: Row("describe_producers"),
    15: Row("describe_groups"),
    16: Row("list_groups"),
    69: Row("consumer_groups"),
    42: Row("delete_groups"),
    47: Row("offset_delete"),
    65: Row("describe_transactions"),
    66: Row("list_transactions"),
}
SELDOM = {
    17: both("sasl"),
    27: Row("write_txn_markers"),
    29: both("acls"),
    30: both("acls"),
    31: both("acls"),
    34: Row("alter_replica_log_dirs"),
    36: both("sasl"),
    38: both("delegation_tokens"),
    39: both("delegation_tokens"),
    40: both("delegation_tokens"),
    41: Row("delegation_tokens"),
    43: Row("elect_leaders", "controller.partitions"),
    45: Row("alter_partition_reassignments", "controller.partitions"),
    46: Row("list_partition_reassignments", "controller.partitions"),
    48: Row("client_quotas"),
    49: both("client_quotas"),
    50: Row("scram_credentials"),
    51: both("scram_credentials"),
    55: Row("quorum", "controller.quorum"),
    57: both("update_features"),
    64: Row("quorum", "controller.brokers"),
    71: Row("client_metrics"),
    72: Row("client_metrics"),
    76: Row("share_groups"),
    77: Row("share_groups"),
    78: Row("share_fetch"),
    79: Row("share_acknowledge"),
    80: both("quorum"),
    81: both("quorum"),
    83: Row("share_state"),
    84: Row("share_state"),
    85: Row("share_state"),
    86: Row("share_state"),
    87: Row("share_state"),
    88: Row("streams_groups"),
    89: Row("streams_groups"),
    90: Row("share_groups"),
    91: Row("share_groups"),
    92: Row("share_groups"),
    93: Row("streams_groups"),
    94: both("quorum"),
}
AMONG_NODES = {
    56: Row(controller="controller.partitions"),
    58: Row(controller="controller.envelope"),
    59: Row(controller="controller.metadata_log"),
    62: Row(controller="controller.brokers"),
    63: Row(controller="controller.brokers"),
    67: Row(controller="controller.producer_ids"),
    73: Row(controller="controller.partitions"),
}
ROWS: Mapping[int, Row] = RECORDS | GROUPS | TRANSACTIONS | ADMINISTRATION | SELDOM | AMONG_NODES
MODULES: Mapping[int, str] = {key: row.broker for key, row in ROWS.items() if row.broker}
"""API key -> module, of the APIs that a broker serves."""
CONTROLLER_MODULES: Mapping[int, str] = {key: row.controller for key, row in ROWS.items() if row.controller}
"""API key -> module, of the APIs that a controller serves."""
OF_BROKERS = (56, 62, 63, 64, 67, 73)
"""Keys of the APIs with which a controller rules over brokers, beside those of its log."""
LONE_CONTROLLER_MODULES: Mapping[int, str] = {
    **CONTROLLER_MODULES,
    **dict.fromkeys(OF_BROKERS, "controller.alone"),
}
"""The same of a node alone, at its listeners for controllers."""


def declared(api_key: int, modules: Mapping[int, str] = MODULES) -> AnyApi:
    """The declaration of one of Kafka's APIs, from its module; KeyError for one that is not served."""
    module = import_module(f"odradek.apis.{modules[api_key]}")
    apis: Iterable[AnyApi] = module.APIS if hasattr(module, "APIS") else (module.API,)
    (found,) = [api for api in apis if api.request.api_key == api_key]
    return found


class Apis(Mapping[int, Served], Generic[Node]):
    """Every API by its key, with its handler of one node, which is made when it is first used."""

    def __init__(
        self,
        node: Node,
        settings: ApiSettings,
        added: Iterable[Declaration[Node]] = (),
        modules: Mapping[int, str] = MODULES,
        last_versions: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """`added` are APIs beside those of Kafka; they may also replace one of Kafka's. `last_versions` has
        those that are to be served of Kafka's own, by key; an API of which it leaves no version is none."""
        self._modules = modules
        self._added = {api.request.api_key: api for api in added}
        self._last_versions = {key: last for key, last in last_versions.items() if key not in self._added}
        served = {key: _up_to(versions_of(key), self._last_versions.get(key)) for key in modules}
        self._versions = {key: versions for key, versions in served.items() if versions}
        self._versions |= {key: api.versions for key, api in self._added.items()}
        self._parts = HandlerParts(node, settings, self._versions)
        self._served: dict[int, Served] = {}

    def __getitem__(self, api_key: int) -> Served:
        served = self._served.get(api_key)
        if served is None:
            if api_key not in self._versions:
                raise KeyError(api_key)
            served = self._serve(self._added.get(api_key) or declared(api_key, self._modules))
            self._served[api_key] = served
        return served

    def __contains__(self, api_key: object) -> bool:
        return api_key in self._versions

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def _serve(self, api: Declaration[Node]) -> Served:
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
        last = self._last_versions.get(api.request.api_key)
        return Served(api, handler, getattr(handler, "prefix", None), last)


def _up_to(versions: range, last: int | None) -> range:
    return versions if last is None else range(versions.start, min(versions.stop, last + 1))
