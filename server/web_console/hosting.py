"""A console beside its broker, from the start of the broker to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.config.broker_config import CONSOLE_LISTEN
from odradek.config.config_error import ConfigError
from odradek.config.listeners import WILDCARDS
from odradek.config.os_reason import reason_of
from odradek.server.network.listeners import Listener, ListenError, SocketOptions, bind_listener
from odradek.server.network.unix_sockets import bind_privately
from odradek.server.web_console.admin import Admin
from odradek.server.web_console.choosing import Way, check_packages, way_of
from odradek.server.web_console.console_process import ConsoleProcess

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.metrics.observed import Hosted

logger = logging.getLogger("odradek.console")

BACKLOG = 128
SHORT_PLACE: Final = "/tmp"
FOLDER_PREFIX: Final = "odradek-console-"
SOCKET_PREFIX: Final = "admin-"
"""Begins the name of a broker's socket in the folder; its node id follows."""
CERTIFICATES: Final = "brokers.pem"
PLACE_CHARACTERS_MAX: Final = 60
"""The path of a socket has 103 characters at most (macOS), 107 on Linux; folder and name take 42 of them."""


def bind_console(config: BrokerConfig) -> list[socket.socket]:
    """The sockets of the console, which listen. ConfigError: the extra is not installed, the console may not
    be open there, or the address cannot be had."""
    assert config.console_address is not None
    check_packages()
    way_of(config)
    listener = Listener(CONSOLE_LISTEN, *config.console_address, None, SocketOptions(BACKLOG))
    try:
        return bind_listener(listener)
    except ListenError as error:
        raise ConfigError(str(error).replace("listeners: ", f"{CONSOLE_LISTEN}: ", 1)) from error


class Hosting:
    """The part of the broker for its console. A worker other than the first one only tells the console of the
    first about itself."""

    def __init__(self, config: BrokerConfig, listening: Sequence[socket.socket]) -> None:
        self._config = config
        self._listening = listening
        self._folder = ""
        self.process: ConsoleProcess | None = None
        """None of a worker other than the first one."""

    @property
    def url(self) -> str:
        """Where browsers find it; empty of a worker other than the first one."""
        if not self._listening:
            return ""
        host, port = self._listening[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{host}:{port}"

    def close(self) -> None:
        """Closes the sockets; harmless a second time."""
        for one in self._listening:
            one.close()

    async def open(self, server: Hosted, ending: AsyncExitStack) -> None:
        """The broker serves. `ending` gets what undoes it. ConfigError."""
        folder = _folder_of_workers(self._config)
        self._folder = _new_folder(ending) if folder is None else folder
        admin = Admin(server)
        path = os.path.join(self._folder, f"{SOCKET_PREFIX}{server.node_id}")
        try:
            await admin.open(bind_privately(path, ending))
        except OSError as error:
            raise ConfigError(
                f"{CONSOLE_LISTEN}: no socket can be made at {path}: {reason_of(error)}."
            ) from None
        ending.push_async_callback(admin.close)
        if self._listening:
            arguments = _Arguments(self._config, server, self._folder)
            arguments()  # reads the certificates: what is wrong with them is told at the start
            self.process = ConsoleProcess(asyncio.get_running_loop(), self._listening, arguments)
            ending.push_async_callback(self.process.close)
            self.process.open()


class _Arguments:
    """The arguments of `odradek console`, of a serving broker."""

    def __init__(self, config: BrokerConfig, server: Hosted, folder: str) -> None:
        self._config, self._server, self._folder = config, server, folder

    def __call__(self) -> list[str]:
        config, values = self._config, self._config.values
        way = way_of(config)
        listener = next(one for one in self._server.listeners if one.name == way.listener)
        arguments = [
            *("-b", _address(listener.host, listener.port)),
            *("-X", f"security.protocol={way.protocol}"),
            *("--admin", self._folder),
            *("--idle-seconds", str(values["odradek.console.idle.seconds"])),
        ]
        if way.mechanism:
            arguments += ["-X", f"sasl.mechanism={way.mechanism}"]
        if way.protocol.endswith("SSL"):
            arguments += self._tls(way)
        for option, flag in (
            ("odradek.console.anonymous", "--anonymous"),
            ("odradek.console.read.only", "--read-only"),
            ("odradek.console.hide.messages", "--hide-messages"),
        ):
            if values[option]:  # type: ignore[literal-required]
                arguments.append(flag)
        for host in values["odradek.console.hosts"] or ():
            arguments += ["--host", host]
        assert config.console_address is not None
        if config.console_address[0] and config.console_address[0] not in WILDCARDS:
            arguments += ["--host", config.console_address[0]]
        return arguments

    def _tls(self, way: Way) -> list[str]:
        """Trust in the broker's own certificate, in whatever name. With other brokers: in its chain and its
        trust store, and in the names that they have."""
        from odradek.security.key_stores import to_pem
        from odradek.server.network.tls_reload import settings_of

        settings = settings_of(self._config.security[way.listener])
        chain = () if settings.key_store is None else settings.key_store.chain
        is_alone = self._config.cluster is None or self._config.worker is not None
        trusted = chain[:1] if is_alone else chain
        if not is_alone and settings.trust_store is not None:
            trusted += settings.trust_store.certificates
        path = os.path.join(self._folder, CERTIFICATES)
        Path(path).write_text(to_pem(trusted), encoding="ascii")
        return [
            *("-X", f"ssl.truststore.location={path}", "-X", "ssl.truststore.type=PEM"),
            *("-X", f"ssl.endpoint.identification.algorithm={'' if is_alone else 'https'}"),
        ]


def _address(host: str, port: int) -> str:
    """The address of a listener from this machine."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# The folder of the sockets


def _folder_of_workers(config: BrokerConfig) -> str | None:
    """The private folder that workers share; None of a broker of one process."""
    if config.worker is None:
        return None
    from odradek.config.worker_place import AMONG_WORKERS

    return next(os.path.dirname(one.host) for one in config.listeners if one.name == AMONG_WORKERS)


def _new_folder(ending: AsyncExitStack) -> str:
    """A directory that only this user may enter."""
    try:
        _remove_left_folders()
        folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=_place())
    except OSError as error:
        raise ConfigError(
            f"{CONSOLE_LISTEN} needs a directory for a socket, and none can be made in "
            f"{_place()}: {reason_of(error)}. TMPDIR may name another place."
        ) from error
    ending.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _place() -> str:
    """The directory for temporary files, or another one if a socket's path would be too long there."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= PLACE_CHARACTERS_MAX else SHORT_PLACE


def _remove_left_folders() -> None:
    """Remove what brokers have left that were killed: nobody listens there."""
    place = _place()
    for name in os.listdir(place):
        folder = os.path.join(place, name)
        if name.startswith(FOLDER_PREFIX) and _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: str) -> bool:
    try:
        if os.lstat(folder).st_uid != os.getuid():
            return False
        names = [name for name in os.listdir(folder) if name.startswith(SOCKET_PREFIX)]
    except OSError:
        return False
    # One without a socket is about to get it.
    return bool(names) and all(_is_deaf(os.path.join(folder, name)) for name in names)


def _is_deaf(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def hosting_of(config: BrokerConfig, sockets: Mapping[str, Sequence[socket.socket]]) -> Hosting:
    """The console of a broker that starts. `sockets` are those that its parent has bound. ConfigError."""
    if config.worker is not None:
        return Hosting(config, sockets.get(CONSOLE_LISTEN, ()))
    return Hosting(config, bind_console(config))
