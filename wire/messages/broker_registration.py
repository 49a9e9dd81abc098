"""BrokerRegistration: a starting broker registers with the controller (KIP-631).

Version 1 has the migration from ZooKeeper, 2 the log directories (KIP-858), 3 the broker
epoch before a clean shutdown (KIP-966), 4 also has features whose lowest level is 0.
"""

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class Listener(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address, as advertised."""
    port: int = on_wire(UINT16)
    """Port number."""
    security_protocol: int = on_wire(INT16)
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class Feature(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    min_supported_version: int = on_wire(INT16)
    """Lowest level that the broker supports."""
    max_supported_version: int = on_wire(INT16)
    """Highest level that the broker supports."""


class BrokerRegistrationRequest(Message, api_key=62, versions=(0, 4), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""
    cluster_id: str = on_wire(STRING)
    """Id of the cluster."""
    incarnation_id: bytes = on_wire(UUID)
    """Id of this process of the broker; each start makes a new one."""
    listeners: list[Listener] = on_wire(Array(Listener))
    """Addresses of the broker."""
    features: list[Feature] = on_wire(Array(Feature))
    """Feature levels that the broker supports."""
    rack: str | None = on_wire(STRING, nullable=ALL)
    """Rack of the broker, null if it has none."""
    is_migrating_zk_broker: bool = on_wire(BOOL, since=1)
    """Whether the broker migrates from ZooKeeper."""
    log_dirs: list[bytes] = on_wire(Array(UUID), since=2, ignorable=True)
    """Ids of the log directories that can be used."""
    previous_broker_epoch: int = on_wire(INT64, since=3, default=-1, ignorable=True)
    """Broker epoch of the last clean shutdown, -1 for none."""


class BrokerRegistrationResponse(Message, api_key=62, versions=(0, 4), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch that the broker has now, -1 after an error."""
