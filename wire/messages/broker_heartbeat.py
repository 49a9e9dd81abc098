"""BrokerHeartbeat: a broker reports its state and its requests to the controller (KIP-631).

Version 1 has failed log directories (KIP-858), 2 those that take no new replicas (KIP-1066).
"""

from odradek.wire.schema import BOOL, INT16, INT32, INT64, UUID, Array, Message, on_wire


class BrokerHeartbeatRequest(Message, api_key=63, versions=(0, 2), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of the broker, from its registration."""
    current_metadata_offset: int = on_wire(INT64)
    """Offset of the last record of the metadata log that the broker has applied."""
    want_fence: bool = on_wire(BOOL)
    """Whether the broker wants to be fenced, as it does before it is ready."""
    want_shut_down: bool = on_wire(BOOL)
    """Whether the broker wants to hand its leaderships over and stop."""
    offline_log_dirs: list[bytes] = on_wire(Array(UUID), since=1, tag=0)
    """Ids of log directories that have failed."""
    cordoned_log_dirs: list[bytes] | None = on_wire(Array(UUID), since=2, default=None, nullable=2, tag=1)
    """Ids of log directories that take no new replicas; null before the broker has caught up."""


class BrokerHeartbeatResponse(Message, api_key=63, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    is_caught_up: bool = on_wire(BOOL)
    """Whether the broker has applied its own registration."""
    is_fenced: bool = on_wire(BOOL, default=True)
    """Whether the broker is fenced: it leads nothing and is in no set of in-sync replicas."""
    should_shut_down: bool = on_wire(BOOL)
    """Whether a broker that wants to stop may do so now."""
