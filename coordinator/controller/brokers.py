"""Brokers: registration, heartbeats, fencing, removal.

A broker registers fenced, with a new epoch for each process. Its heartbeats keep its session; one that has
applied its own registration is unfenced when it asks for it. A broker whose session is over, or whose
process is known to have ended, is fenced: it leads nothing. One that wants to stop hands its leaderships
over first, and may go once it leads nothing and all active brokers have applied that.

Another process with the same id is refused as long as the session of the first one lives. Difference from
Kafka: the session ends with a granted shutdown, so that a restart does not wait for its time-out.

Differences where Kafka's controller fails with an unexpected exception: a listener without a host, with a
port or a security protocol that cannot be, is refused with INVALID_REGISTRATION.

Source: ClusterControlManager.registerBroker, BrokerHeartbeatManager and
ReplicationControlManager.processBrokerHeartbeat of Kafka 4.4; KIP-631, KIP-841, KIP-858, KIP-966, KIP-1066.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from odradek.coordinator.cluster.features import CORDONS_SINCE, DIRECTORIES_SINCE, METADATA_VERSION
from odradek.coordinator.cluster.metadata_image import SECURITY_PROTOCOLS
from odradek.coordinator.cluster.view import Broker, ClusterView
from odradek.coordinator.controller.batch import Batch, Decision, PartitionDefaults
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.directories import fail_directories, is_reserved
from odradek.coordinator.controller.elections import (
    begin_controlled_shutdown,
    begin_incarnation,
    end_registration,
    fence_brokers,
    unfence_broker,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from odradek.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

# --- Registration ---


def register_broker(
    view: ClusterView,
    defaults: PartitionDefaults,
    sessions: BrokerSessions,
    request: BrokerRegistrationRequest,
    next_offset: int,
    now_ms: int,
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker. `next_offset` is that of the first record of this decision, and the epoch of a new
    process; the process that is registered keeps its epoch.

    Refuses with INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED (a migration
    from ZooKeeper), INVALID_REGISTRATION or UNSUPPORTED_VERSION, in this order.
    """
    if request.cluster_id != view.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {view.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    known = view.registrations.get(request.broker_id)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    if known is not None and not is_same and sessions.is_alive(known, now_ms):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. Its session has not ended yet.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
        )
    batch = Batch(view, defaults)
    has_directories = batch.metadata_version >= DIRECTORIES_SINCE
    if has_directories:
        _check_directories(view, request)
    for listener in request.listeners:
        _check_listener(listener)
    _check_features(view, request)
    if not is_same:
        was_clean = known is not None and known.epoch == request.previous_broker_epoch
        begin_incarnation(batch, request.broker_id, was_clean=was_clean)
    epoch = known.epoch if known is not None and is_same else next_offset
    batch.add(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            is_migrating_zk_broker=False,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(
                    name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
                )
                for one in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=one.name,
                    min_supported_version=one.min_supported_version,
                    max_supported_version=one.max_supported_version,
                )
                for one in request.features
            ],
            rack=request.rack,
            fenced=known.is_fenced if known is not None and is_same else True,
            in_controlled_shutdown=known is not None and is_same and known.in_controlled_shutdown,
            log_dirs=list(request.log_dirs) if has_directories else [],
        )
    )
    response = BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=epoch)
    return Decision(batch.records, response)


def _check_directories(view: ClusterView, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        reason = "No directories specified in request"
    elif any(is_reserved(directory) for directory in directories):
        reason = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        reason = "Duplicate directory ID in request"
    elif others := [
        broker
        for broker in view.registrations.values()
        if broker.node_id != request.broker_id and not set(directories).isdisjoint(broker.directories)
    ]:
        reason = f"Broker {others[0].node_id} is already registered with one of the directories"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REGISTRATION, reason)


def _check_listener(listener: Listener) -> None:
    if not 0 <= listener.security_protocol < len(SECURITY_PROTOCOLS):
        reason = f"the security protocol {listener.security_protocol}"
    elif not listener.host.strip():
        reason = "no host"
    elif not listener.port:
        reason = "no port"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Listener {listener.name} has {reason}")


def _check_features(view: ClusterView, request: BrokerRegistrationRequest) -> None:
    """Refuse a broker that does not support a finalized level; one that does not name a feature supports
    0."""
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    for name in (
        *ranges,
        *(name for name in view.features if name not in ranges and METADATA_VERSION in ranges),
    ):
        lowest, highest = ranges.get(name, (0, 0))
        level = view.features.get(name, 0)
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support the version {level} of {name}: "
                f"it wants a version between {lowest} and {highest}, inclusive.",
            )
    if METADATA_VERSION not in ranges:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")


# --- Heartbeats ---


class BrokerControlState(Enum):
    """State of a broker as its controller has it."""

    FENCED = "FENCED"
    UNFENCED = "UNFENCED"
    CONTROLLED_SHUTDOWN = "CONTROLLED_SHUTDOWN"
    SHUTDOWN_NOW = "SHUTDOWN_NOW"
    """The broker is fenced, and may end."""


class HeartbeatDecision(NamedTuple):
    """Outcome of a heartbeat."""

    records: list[MetadataRecord]
    response: BrokerHeartbeatResponse
    shutting_down: Broker | None
    """The broker that is in controlled shutdown. Once the records are in the log, call
    `BrokerSessions.begin_shutdown` with the log's last offset."""


def heartbeat(
    view: ClusterView,
    defaults: PartitionDefaults,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> HeartbeatDecision:
    """Take a heartbeat; the broker's session goes on, or ends with a granted shutdown.

    Refuses with STALE_BROKER_EPOCH.
    """
    batch = Batch(view, defaults)
    broker = batch.broker(request.broker_id, request.broker_epoch)
    sessions.contact(broker, now_ms)
    before = _state(sessions, broker)
    after = _next_state(batch, sessions, broker, before, request)
    is_fenced = after in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)
    if after is not before:
        if is_fenced:
            fence_brokers(batch, [broker])
        elif after is BrokerControlState.UNFENCED:
            unfence_broker(batch, broker)
        else:
            begin_controlled_shutdown(batch, broker)
    sessions.applied(broker, request.current_metadata_offset)
    if is_fenced:
        sessions.cancel_shutdown(broker)
    if after is BrokerControlState.SHUTDOWN_NOW:
        sessions.end(broker)
    if batch.metadata_version >= DIRECTORIES_SINCE:
        fail_directories(batch, broker, request.offline_log_dirs)
    if batch.metadata_version >= CORDONS_SINCE:
        _cordon(batch, broker, request.cordoned_log_dirs)
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE,
        is_caught_up=request.current_metadata_offset >= broker.epoch,
        is_fenced=is_fenced,
        should_shut_down=after is BrokerControlState.SHUTDOWN_NOW,
    )
    is_shutting_down = after is BrokerControlState.CONTROLLED_SHUTDOWN
    return HeartbeatDecision(batch.records, response, broker if is_shutting_down else None)


def _state(sessions: BrokerSessions, broker: Broker) -> BrokerControlState:
    if sessions.is_shutting_down(broker):
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.FENCED if broker.is_fenced else BrokerControlState.UNFENCED


def _next_state(
    batch: Batch,
    sessions: BrokerSessions,
    broker: Broker,
    state: BrokerControlState,
    request: BrokerHeartbeatRequest,
) -> BrokerControlState:
    if state is BrokerControlState.FENCED:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        if not request.want_fence and request.current_metadata_offset >= broker.epoch:
            return BrokerControlState.UNFENCED
        return state
    if state is BrokerControlState.UNFENCED:
        if request.want_fence:
            is_ending = request.want_shut_down
            return BrokerControlState.SHUTDOWN_NOW if is_ending else BrokerControlState.FENCED
        if not request.want_shut_down:
            return state
        leads = _leads(batch, broker)
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    registrations = batch.view.registrations.values()
    if _leads(batch, broker) or not sessions.have_all_applied(broker, registrations):
        return state
    return BrokerControlState.SHUTDOWN_NOW


def _leads(batch: Batch, broker: Broker) -> bool:
    """Whether the broker leads any partition."""
    return any(True for _ in batch.places(lambda one: one.leader == broker.node_id))


def _cordon(batch: Batch, broker: Broker, cordoned: list[bytes] | None) -> None:
    if cordoned is not None and tuple(sorted(cordoned)) != broker.cordoned_directories:
        batch.add(
            BrokerRegistrationChangeRecord(
                broker_id=broker.node_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )


# --- Fencing ---


def fence_expired(
    view: ClusterView, defaults: PartitionDefaults, sessions: BrokerSessions, now_ms: int
) -> list[MetadataRecord]:
    """Fence the brokers whose sessions are over. Look again at `BrokerSessions.next_expiry_ms`."""
    batch = Batch(view, defaults)
    if expired := sessions.take_expired(view.registrations, now_ms):
        fence_brokers(batch, expired)
    return batch.records


def fence(
    view: ClusterView,
    defaults: PartitionDefaults,
    sessions: BrokerSessions,
    broker_id: int,
    broker_epoch: int,
) -> list[MetadataRecord]:
    """Fence a broker whose process is known to have ended. None of the records: it is fenced, or another
    process has registered since."""
    batch = Batch(view, defaults)
    broker = view.registrations.get(broker_id)
    if broker is not None and broker.epoch == broker_epoch:
        sessions.end(broker)
        if not broker.is_fenced:
            fence_brokers(batch, [broker])
    return batch.records


# --- Removal ---


def unregister_broker(
    view: ClusterView, defaults: PartitionDefaults, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    """Remove the registration of a broker; refuses with BROKER_ID_NOT_REGISTERED. Nobody asks whether the
    broker lives, and its replicas stay assigned."""
    broker = view.registrations.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    batch = Batch(view, defaults)
    end_registration(batch, broker)
    return Decision(batch.records, UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=""))
