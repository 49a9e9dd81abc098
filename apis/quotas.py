"""The quotas of clients, as handlers ask for them. While no client has a quota nothing is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.security.client_meters import FetchCharge, MutationCharge, QuotaMeters


class ClientQuotas:
    """The server sets `meters`; None while no user and no client has a quota."""

    __slots__ = ("meters",)

    def __init__(self) -> None:
        self.meters: QuotaMeters | None = None

    def fetch_charge(self, context: RequestContext) -> FetchCharge | None:
        """None if no quota is for the fetches of this client."""
        if self.meters is None:
            return None
        return self.meters.fetch_charge(context.connection.principal, context.client_id)

    def mutation_charge(self, context: RequestContext, strict_since: int) -> MutationCharge | None:
        """None if no quota is for the partitions that this client makes and deletes. Versions of the API from
        `strict_since` on are refused, older ones are done."""
        if self.meters is None:
            return None
        is_strict = context.api_version >= strict_since
        principal = context.connection.principal
        return self.meters.mutation_charge(principal, context.client_id, is_strict=is_strict)


def free(partitions: int) -> None:
    """For a request without a charge."""
