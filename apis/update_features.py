"""UpdateFeatures (key 57, versions 0 to 2): the feature levels of the cluster.

A level is raised or, if the request allows it, lowered; level 0 switches the feature off. A request is
applied as a whole or not at all: the first invalid level refuses it. The new levels are stored, and
ApiVersions returns them to clients that connect later; earlier clients go on with the levels that they know,
which are served too.

`coordinator/cluster/features.py` has the list of features. Eligible leader replicas bring a setting for all
brokers (`min.insync.replicas`). Version 0 has no upgrade type, and as in Kafka its `allow_downgrade` has no
effect.

Source: QuorumController.updateFeatures and FeatureControlManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.coordinator.cluster.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    loses_metadata,
    unmet_need,
)
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.wire.work import Work

LAST_VERSION_WITH_RESULTS = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class UpdateFeatures:
    """The handler."""

    def __init__(self, node_id: int, machine: Decisions, work: WorkQueue) -> None:
        self._node_id = node_id
        self._machine = machine
        self._work = work

    def __call__(self, request: UpdateFeaturesRequest, context: RequestContext) -> WorkResponse:
        return WorkResponse(self._work, self._updating(request, context.api_version), context)

    def _updating(self, request: UpdateFeaturesRequest, version: int) -> Work[UpdateFeaturesResponse]:
        """Runs in the queue of all changes of the cluster: each is checked against the result of the previous
        one."""
        yield None
        try:
            levels = self._checked(request.feature_updates)
            if levels and not request.validate_only:
                yield from self._machine.changing_features(levels)
        except KafkaError as error:
            return _refused(error)
        response = UpdateFeaturesResponse(error_code=0, error_message=None, results=[])
        if version <= LAST_VERSION_WITH_RESULTS:
            response.results = [
                # Kafka writes the text "NONE" where there is no error.
                UpdatableFeatureResult(feature=update.feature, error_code=0, error_message="NONE")
                for update in request.feature_updates
            ]
        return response

    def _checked(self, updates: Sequence[FeatureUpdateKey]) -> dict[str, int]:
        """The new level of each feature; if one is named twice, the last counts."""
        requested = {update.feature: update for update in updates}
        levels = {name: update.max_version_level for name, update in requested.items()}
        current = self._machine.view.features
        for update in requested.values():
            self._check(update, current.get(update.feature, 0), {**current, **levels})
        return levels

    def _check(self, update: FeatureUpdateKey, finalized: int, levels: Mapping[str, int]) -> None:
        """`levels` are the levels of all features after the change."""
        name, level, upgrade_type = update.feature, update.max_version_level, update.upgrade_type
        if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            raise _invalid(update, "The controller does not support the given upgrade type.")
        if level < 0:
            raise _invalid(update, "A feature version cannot be less than 0.")
        lowest, highest = FEATURES[name][:2] if name in FEATURES else (0, 0)
        if not lowest <= level <= highest:
            what = "does not support this feature."
            if highest > 0:
                what = f"only supports versions {lowest}-{highest}"
            raise _invalid(update, f"Local controller {self._node_id} {what}")
        self._check_brokers(update)
        if level < finalized and upgrade_type == UPGRADE:
            raise _invalid(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe "
                "or unsafe downgrade.",
            )
        if level > finalized and upgrade_type != UPGRADE:
            raise _invalid(update, "Can't downgrade to a newer version.")
        if name not in FEATURES:
            raise _invalid(update, f"Feature {name} not found.")
        if name == METADATA_VERSION and loses_metadata(finalized, level):
            raise _loses_metadata(finalized, update)
        if name == KRAFT_VERSION and level < finalized:
            raise _invalid(update, "Can't downgrade the version of this feature.")
        needed = unmet_need(name, level, levels)
        if needed is not None:
            why = f"it depends on {METADATA_VERSION} level {needed}"
            raise _invalid(update, f"{name} could not be set to {level} because {why}")

    def _check_brokers(self, update: FeatureUpdateKey) -> None:
        """Fenced ones count, too: they would be shut out of their cluster."""
        for node_id, broker in sorted(self._machine.view.registrations.items()):
            lowest, highest = broker.features.get(update.feature, (0, 0))
            if lowest <= update.max_version_level <= highest:
                continue
            what = "does not support this feature."
            if highest > 0:
                versions = f"{lowest}-{highest}" if lowest < highest else f"{lowest}"
                what = f"only supports versions {versions}"
            raise _invalid(update, f"Broker {node_id} {what}")


def _loses_metadata(finalized: int, update: FeatureUpdateKey) -> KafkaError:
    why = "Refusing to perform the requested downgrade because it might delete metadata information."
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    what = f"Unsupported {METADATA_VERSION} downgrade from {finalized} to {update.max_version_level}."
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} {why}")


def _invalid(update: FeatureUpdateKey, why: str) -> KafkaError:
    """Kafka's texts: `kafka-features` shows them, and scripts look for them."""
    what = f"Invalid update version {update.max_version_level} for feature {update.feature}."
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} {why}")


def _refused(error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message="The update failed for all features since the following feature had an error: "
        f"{error.message}",
        results=[],
    )


API = SharedApi(
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    make=lambda parts: UpdateFeatures(parts.node.node_id, parts.node.machine, parts.node.changes),
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
)
