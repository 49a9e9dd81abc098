"""Delegation tokens that the user may see, without their secrets."""

from starlette.responses import Response

from odradek.client.admin.tokens import describe_tokens
from odradek.client.cluster import Cluster
from odradek.console.listing import Listing
from odradek.console.visit import Screen, Visit

KEYS = ("owner", "token_id", "requester", "issue_time_ms", "expiry_time_ms", "max_time_ms")


async def show(visit: Visit) -> Response:
    """Tokens by their owners."""
    query, text = visit.query, visit.text("filter")

    def listed(cluster: Cluster) -> Listing:
        rows = [
            {
                "owner": one.owner,
                "token_id": one.token_id,
                "requester": one.requester,
                "renewers": one.renewers,
                "issue_time_ms": one.issue_time_ms,
                "expiry_time_ms": one.expiry_time_ms,
                "max_time_ms": one.max_time_ms,
            }
            for one in describe_tokens(cluster)
            if text.lower() in f"{one.owner} {one.token_id}".lower()
        ]
        return Listing(rows, "/tokens", query, KEYS)

    return visit.page("tokens.html", tokens=await visit.part(listed), filter=text)


SCREENS = [Screen("/tokens", show)]
