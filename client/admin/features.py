"""The levels of features, raised and lowered for the whole cluster."""

from collections.abc import Mapping

from odradek.client.admin.asking import TIMEOUT_MS, Outcome, ask_controller, outcome
from odradek.client.client_error import refusal
from odradek.client.cluster import Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update_features(
    cluster: Cluster, levels: Mapping[str, int], kind: int, *, only_validate: bool = False
) -> Outcome:
    """Sets the levels; all of them or, with brokers of Kafka 4.0 and later, none. ClientError for that, and
    refusals of single features from older brokers."""
    request = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                allow_downgrade=False,  # of version 0 alone, which knows no safe downgrade
                upgrade_type=kind,
            )
            for name, level in levels.items()
        ],
        validate_only=only_validate,
    )
    response = ask_controller(cluster, request)
    if response.error_code != ErrorCode.NONE:
        raise refusal("changing features", response.error_code, response.error_message)
    return outcome(
        "changing feature", [(one.feature, one.error_code, one.error_message) for one in response.results]
    )
