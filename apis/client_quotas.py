"""DescribeClientQuotas (key 48, versions 0 and 1) and AlterClientQuotas (49, 0 and 1): how much a user, a
client or an address may do.

The rules are in `coordinator/security/client_quotas.py`. In a cluster the controllers alter quotas; this node
describes them as it has them. Names of hosts are resolved in a worker thread, while other changes go on; an
address needs none.

Source: KafkaApis and ControllerApis of Kafka 4.3; KIP-546, KIP-612.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis.access import on_cluster
from odradek.apis.api import Waiting, WorkResponse
from odradek.apis.declaration import Api, Forwarding, SharedApi
from odradek.apis.refusals import Refusal, each_of
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.security.client_quotas import altered, described, hosts_of
from odradek.wire.acl_types import Operation
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResult,
)
from odradek.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from odradek.wire.messages.describe_client_quotas import EntityData as DescribedEntity

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.view import ClusterView, QuotaEntity
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.apis")

NAMES_MAX = 100
"""Names of hosts of one request that are resolved; further ones are refused. Addresses are not counted."""
HOSTS_PER_STEP = 100
"""Less than a millisecond."""
IsAddress = Callable[[str], bool]
"""Whether a text is an address; it does not block."""
IsHost = Callable[[str], bool]
"""Whether a text is an address, or a name that has one here; it may block."""


class Hosts(NamedTuple):
    """The hosts of a request."""

    known: frozenset[str] = frozenset()
    """Addresses, and names that have one."""
    left_out: frozenset[str] = frozenset()
    """Names over `NAMES_MAX`."""

    def refusal_of(self, host: str) -> str | None:
        """Why it can have no quota."""
        if host in self.known:
            return None
        if host in self.left_out:
            return (
                f"{host} is not looked up: a request may have {NAMES_MAX} names of hosts. Write addresses, "
                "or another request for the rest."
            )
        return f"{host} is not a valid IP or resolvable host."


class DescribeClientQuotas:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        quotas = self._current_view().client_quotas
        try:
            found = described(quotas, request.components, strict=request.strict)
        except KafkaError as error:
            return DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message, entries=None
            )
        entries = [_entry(entity, values) for entity, values in found.items()]
        return DescribeClientQuotasResponse(error_code=0, error_message="", entries=entries)


class AlterClientQuotas:
    """The handler: each entity is answered once, however often the request has it. `lookups` is a queue for
    hosts that have to be resolved."""

    def __init__(
        self,
        machine: Decisions,
        work: WorkQueue,
        lookups: WorkQueue,
        is_address: IsAddress,
        is_host: IsHost,
    ) -> None:
        self._machine = machine
        self._work = work
        self._lookups = lookups
        self._is_address = is_address
        self._is_host = is_host

    def __call__(self, request: AlterClientQuotasRequest, context: RequestContext) -> Waiting:
        hosts = hosts_of(request.entries)
        if not hosts:
            return WorkResponse(self._work, self._altering(request, Hosts()), context)
        waiting = Waiting()

        def failed(error: Exception) -> None:
            logger.error("quotas could not be altered", exc_info=error)
            context.connection.close("internal error")
            waiting.complete(None)

        def resolved(found: Hosts) -> None:
            self._work.run(self._altering(request, found), waiting.complete, failed)

        def sorted_out(addresses: list[str]) -> None:
            known = frozenset(addresses)
            names = [host for host in hosts if host not in known]
            if names:
                self._lookups.run(self._resolving(known, names), resolved, failed)
            else:
                resolved(Hosts(known))

        self._work.run(self._finding_addresses(hosts), sorted_out, failed)
        return waiting

    def _finding_addresses(self, hosts: list[str]) -> Work[list[str]]:
        addresses: list[str] = []
        for begin in range(0, len(hosts), HOSTS_PER_STEP):
            addresses += filter(self._is_address, hosts[begin : begin + HOSTS_PER_STEP])
            yield None
        return addresses

    def _resolving(self, addresses: frozenset[str], names: list[str]) -> Work[Hosts]:
        looked_up = names[:NAMES_MAX]
        found: frozenset[str] = yield lambda: frozenset(filter(self._is_host, looked_up))
        return Hosts(addresses | found, frozenset(names[NAMES_MAX:]))

    def _altering(self, request: AlterClientQuotasRequest, hosts: Hosts) -> Work[AlterClientQuotasResponse]:
        alterations = altered(self._machine.view.client_quotas, request.entries, hosts.refusal_of)
        refusals = alterations.refusals
        if alterations.changed and not request.validate_only:
            try:
                yield from self._machine.changing(
                    at_once(lambda draft: draft.set_quotas(alterations.changed))
                )
            except KafkaError as error:
                # Nothing was changed.
                refusals = {entity: refusal or error for entity, refusal in refusals.items()}
        results = [_result(entity, refusal) for entity, refusal in refusals.items()]
        return AlterClientQuotasResponse(entries=results)


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[DescribedEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in values.items()],
    )


def _result(entity: QuotaEntity, refusal: KafkaError | None) -> EntryDataResult:
    return EntryDataResult(
        error_code=0 if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _make_alter(parts: SharedApiParts) -> AlterClientQuotas:
    node = parts.node
    return AlterClientQuotas(node.machine, node.changes, node.reads, node.is_address, node.is_host)


APIS = (
    Api(
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        make=lambda parts: DescribeClientQuotas(parts.node.current_view),
        needs=(on_cluster(Operation.DESCRIBE_CONFIGS),),
        refusal=Refusal(fields=lambda version: {"entries": None}, has_message=False),
    ),
    SharedApi(
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        make=_make_alter,
        needs=(on_cluster(Operation.ALTER_CONFIGS),),
        changes=True,
        forwarded=Forwarding.AS_IT_COMES,
        refusal=Refusal(results=("entries", each_of("entries", "entity"))),
    ),
)
