"""The connection to ZooKeeper: one client of kazoo, and one line in the log when it is lost or back.

A client whose login is refused gives up by itself; `revive` has it begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.config.config_error import ConfigError
from odradek.coordinator.zookeeper import nodes
from odradek.server.zookeeper.secured import Secured

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from odradek.config.broker_config import BrokerConfig

logger = logging.getLogger("odradek.zookeeper")

RETRY_MAX_S = 5.0
"""The longest pause between two attempts to connect."""


class Session:
    """An open connection. Its methods block, and may be called in any thread but the event loop's."""

    def __init__(self, address: str, timeout_s: float, secured: Secured) -> None:
        try:
            import kazoo.client  # noqa: F401

            if secured.login is not None:
                import puresasl  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"zookeeper.connect needs the package {(error.name or 'kazoo').partition('.')[0]}: "
                "pip install 'odradek[zookeeper]'."
            ) from None
        self.address = address
        self.timeout_s = timeout_s
        self._secured = secured
        try:
            self.client = self._client(address)
        except (ValueError, TypeError):
            raise ConfigError(
                f"zookeeper.connect: {address!r} is not of the form HOST:PORT,HOST:PORT/CHROOT."
            ) from None
        self.on_change: Callable[[], object] = lambda: None
        """Called, in a thread of the client, when the connection is lost or back."""
        self._is_lost = False
        self._is_refused = False
        self._is_closing = False

    def _client(self, address: str) -> KazooClient:
        from kazoo.client import KazooClient

        quiet = logging.getLogger("odradek.zookeeper.client")
        if quiet.level == logging.NOTSET:
            # It tells each attempt to connect; we tell the loss and the return.
            quiet.setLevel(logging.CRITICAL)
        return KazooClient(
            address,
            timeout=self.timeout_s,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": RETRY_MAX_S},
            logger=quiet,
            handler=self._handler(),
            sasl_options=self._sasl_options(),
        )

    def _handler(self) -> Any:
        if self._secured.tls is None and self._secured.login is None:
            return None
        from odradek.server.zookeeper.handler import Handler

        return Handler(self._secured.tls)

    def _sasl_options(self) -> dict[str, str] | None:
        login = self._secured.login
        if login is None:
            return None
        return {"mechanism": login.mechanism, "username": login.user, "password": login.password.reveal()}

    def open(self, patience_s: float) -> None:
        """Raises ConfigError when nobody answers for so long."""
        from kazoo.exceptions import KazooException
        from kazoo.protocol.states import KeeperState

        reason = ""
        self.client.start_async().wait(patience_s)
        try:
            if self.client.connected:
                self.make_root()
                self.client.add_listener(self._state_changed)
                return
        except KazooException as error:
            reason = f" ({type(error).__name__})"
        login, tls = self._secured.login, self._secured.tls
        has_given_up = self.client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
        self.close()
        if login is not None and has_given_up:
            raise ConfigError(
                f"zookeeper.connect: the ZooKeeper at {self.address} refuses the login of {login.user}."
            )
        if tls is not None and tls.problem is not None:
            reason = f" with TLS ({tls.problem})"
        raise ConfigError(
            f"zookeeper.connect: no ZooKeeper answers at {self.address} within {patience_s:g} s{reason}: "
            "start it, or leave the option out."
        )

    def close(self) -> None:
        """The broker's own nodes are gone at once. Harmless a second time."""
        self._is_closing = True
        self.client.remove_listener(self._state_changed)
        self.client.stop()
        self.client.close()

    @property
    def is_connected(self) -> bool:
        return bool(self.client.connected)

    @property
    def id(self) -> int:
        """Id of the session; another one after it has expired."""
        return int(self.client.client_id[0])

    def get(self, path: str, watch: Callable[[Any], object] | None = None) -> bytes | None:
        """The content of a node; None if there is no such node. `watch` is called at its next change, also
        when it comes to be."""
        from kazoo.exceptions import NoNodeError

        while True:
            try:
                return bytes(self.client.get(path, watch)[0] or b"")
            except NoNodeError:
                if watch is None or self.client.exists(path, watch) is None:
                    return None

    def cluster_id(self) -> str | None:
        """The id in `/cluster/id`; None where no broker has been. ConfigError: it cannot be read."""
        content = self.get(nodes.CLUSTER_ID)
        try:
            return nodes.read_cluster_id(content) if content else None
        except ValueError as error:
            raise ConfigError(f"zookeeper.connect: {error} at {self.address}.") from None

    def make_root(self) -> None:
        """The directory in the address, of any depth. A client that is in it cannot make those above it."""
        from kazoo.exceptions import ConnectionLoss

        if self.client.exists("/") is not None:
            return
        above = self._client(self.address.partition("/")[0])
        try:
            if not above.start_async().wait(self.timeout_s):
                raise ConnectionLoss
            above.ensure_path(self.client.chroot, acl=self.access("/"))
        finally:
            above.stop()
            above.close()

    def ensure_path(self, path: str) -> None:
        """Makes a node where there is none, and those above it in the same way."""
        self.client.ensure_path(path, acl=self.access(path))

    def access(self, path: str) -> Any:
        """Rights to a node that the broker makes; None: everybody may do everything."""
        from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

        if not self._secured.is_protected or nodes.is_open(path):
            return None
        return CREATOR_ALL_ACL if nodes.is_secret(path) else CREATOR_ALL_ACL + READ_ACL_UNSAFE

    @property
    def has_given_up(self) -> bool:
        """Whether ZooKeeper has refused the login since the session was open."""
        return self._is_refused

    def revive(self) -> None:
        """Begins anew after a login that was refused."""
        self._is_refused = False
        self.client.start_async()

    def tell_return(self) -> None:
        """All has gone well: a word in the log if it had not, unless the connection is lost by now."""
        if self._is_lost and self.is_connected:
            self._is_lost = False
            logger.info("ZooKeeper at %s answers again", self.address)

    def _state_changed(self, state: str) -> None:
        """In the thread of the connection, which must not wait."""
        from kazoo.protocol.states import KazooState, KeeperState

        if state == KazooState.LOST and not self._is_closing:
            self._is_refused = self.client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
        if state != KazooState.CONNECTED and not self._is_lost and not self._is_closing:
            self._is_lost = True
            logger.warning(
                "ZooKeeper at %s does not answer: clients that need it have to wait, all others are served",
                self.address,
            )
        self.on_change()


def session_of(config: BrokerConfig) -> tuple[Session, float]:
    """A session that is not open yet, and how many seconds a start waits for it."""
    timeout_s = config.values["zookeeper.session.timeout.ms"] / 1000
    patience_ms = config.values["zookeeper.connection.timeout.ms"]
    session = Session(config.values["zookeeper.connect"], timeout_s, Secured.of(config.values))
    return session, timeout_s if patience_ms is None else patience_ms / 1000
