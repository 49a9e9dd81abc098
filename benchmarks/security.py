"""The part `security`: what an authorizer, a quota that never bites, and SASL cost each request.

Each cost is beside that of the broker that has nothing configured.
"""

from __future__ import annotations

from benchmarks.figures import Section
from benchmarks.request_cost import (
    CONNECTIONS,
    PASSWORD,
    USER,
    Setup,
    children,
    cost_figures,
    measured_costs,
)
from benchmarks.run import Run

ROUNDS_FACTOR = 2
"""The best of many short rounds is less disturbed than the best of few."""
SHARE_MAX = 1.05
"""The most that a request may cost, beside one where nothing is configured."""
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
}
SETUPS = {
    "nothing configured": Setup(),
    "an authorizer with 10 ACLs": Setup(AUTHORIZER, acls=10),
    "an authorizer with 10,000 ACLs": Setup(AUTHORIZER, acls=10_000),
    "quotas that never bite": Setup(has_quota=True),
    "SASL, after the handshake": Setup(SASL, logs_in=True),
}


def measure(run: Run) -> Section:
    """Takes about three minutes."""
    section = Section("What security costs a request")
    section.notes = [
        f"CPU time of the broker's process for a request, {CONNECTIONS} connections with one request in "
        f"flight each; the best of {run.rounds * ROUNDS_FACTOR} rounds, in turn. A share of 1 is the cost "
        f"where nothing is configured; at most {SHARE_MAX} is the target. Quotas: bytes and processor time "
        "of each user."
    ]
    with children(run, SETUPS) as started:
        found = measured_costs(run, started, run.rounds * ROUNDS_FACTOR)
    section.figures += cost_figures([found], "nothing configured", SHARE_MAX)
    return section
