"""The cluster's level of the feature transaction.version."""

from __future__ import annotations

import time

from compat_tests.kit import readers
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
SECONDS = 30.0


def transaction_version(bootstrap: str) -> int:
    """The finalized level; 0 if there is none."""
    with readers.asking(bootstrap) as side:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        found = side.ask(request, 3)
    levels = {one.name: one.max_version_level for one in found.finalized_features}
    return int(levels.get(FEATURE, 0))


def set_transaction_version(bootstrap: str, level: int) -> None:
    """Moves it up or down; returns when the broker tells the new level."""
    now = transaction_version(bootstrap)
    if now == level:
        return
    update = FeatureUpdateKey(
        feature=FEATURE, max_version_level=level, upgrade_type=UPGRADE if level > now else UNSAFE_DOWNGRADE
    )
    with readers.asking(bootstrap) as side:
        answer = side.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == 0, answer
    assert all(result.error_code == 0 for result in answer.results), answer
    deadline = time.monotonic() + SECONDS
    while transaction_version(bootstrap) != level:
        assert time.monotonic() < deadline, f"{FEATURE} does not become {level}"
        time.sleep(0.005)
