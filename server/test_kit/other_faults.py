"""Faults that are not of requests: connections that are refused, logins that fail, disks that are full or
broken.

Each is put where the broker asks for it while there is one: into the connections, into the listeners with
SASL, and into the files of the data directories. Nothing of it is there before, and nothing afterwards.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from odradek.server.security.sasl.mechanism import AuthenticationFailed
from odradek.server.test_kit.fault_rules import Firing
from odradek.storage.disk import Buffer, OsFile

if TYPE_CHECKING:
    from odradek.server.test_kit.tested import Tested

DISK_ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
"""A full disk, and a broken one."""
Fired = Callable[[Firing], None]
"""Is told of each fault that fires."""


@dataclass(kw_only=True, eq=False)
class OtherFault(Firing):
    """`given` are the arguments that say what it is for and does."""

    given: dict[str, Any]

    def about(self) -> dict[str, Any]:
        return self.given

    def is_for(self, name: str, value: str) -> bool:
        """Whether an argument is this one, or was not given."""
        return name not in self.given or bool(self.given[name] == value)


class ConnectionFault(OtherFault):
    """Refuses new connections."""


class LoginFault(OtherFault):
    """Refuses clients whose credentials are right."""


@dataclass(kw_only=True, eq=False)
class DiskFault(OtherFault):
    """Fails what is written below a directory; with EIO what is read, too."""

    error: str
    directory: str

    def is_below(self, path: str) -> bool:
        """Whether the path is in the directory."""
        return path == self.directory or path.startswith(f"{self.directory}/")


Kind = TypeVar("Kind", bound=OtherFault)


class OtherFaults:
    """Faults of one broker that are not of requests."""

    def __init__(self, server: Tested, fired: Fired) -> None:
        self._server = server
        self._fired = fired
        self._disk = _FaultyDisk(server.store.disk, self._fails)
        self._faults: list[Firing] = []

    @property
    def login_listeners(self) -> list[Any]:
        """The listeners on which clients log in."""
        return [one.sasl for one in self._server.listeners if one.sasl is not None]

    def use(self, faults: Sequence[Firing]) -> None:
        """These, and no others, from now on."""
        before, self._faults = self._faults, list(faults)
        self._server.connections.refuses = self._refuses if self._of(ConnectionFault) else None
        for listener in self.login_listeners:
            listener.check_login = self._check_login if self._of(LoginFault) else None
        if any(isinstance(one, DiskFault) for one in (*before, *faults)):
            self._disk.follow(self._of(DiskFault))

    def _of(self, kind: type[Kind]) -> list[Kind]:
        return [one for one in self._faults if isinstance(one, kind)]

    def _fire(self, fault: Firing) -> bool:
        if not fault.fires():
            return False
        self._fired(fault)
        return True

    def _refuses(self, listener: str, host: str) -> bool:
        return any(self._fire(one) for one in self._of(ConnectionFault) if one.is_for("listener", listener))

    def _check_login(self, mechanism: str, principal: str) -> None:
        for one in self._of(LoginFault):
            if one.is_for("principal", principal) and self._fire(one):
                raise AuthenticationFailed(f"a fault refuses {principal}")

    def _fails(self, path: str, is_read: bool) -> None:
        """OSError where a fault is about this file."""
        for one in self._of(DiskFault):
            if not one.is_below(path) or (is_read and one.error != "EIO"):
                continue
            if self._fire(one):
                number = DISK_ERRORS[one.error]
                raise OSError(number, os.strerror(number), path)


class _FaultyDisk:
    """Puts itself between a store and its disk while there are faults."""

    def __init__(self, disk: Any, fails: Callable[[str, bool], None]) -> None:
        self._disk = disk
        self._fails = fails

    def follow(self, faults: Sequence[DiskFault]) -> None:
        """Files below the directories of these fail from now on, and no others."""
        if self._fails in _FaultyFile.judges:
            _FaultyFile.judges.remove(self._fails)
        if faults:
            _FaultyFile.judges.append(self._fails)
        for name in ("make_directory", "rename"):
            self._replace(name, self._or_fail(name) if faults else None)
        self._replace("open", self._open if faults else None)
        for file in gc.get_objects():
            if type(file) in (OsFile, _FaultyFile):
                file.__class__ = _FaultyFile if _FaultyFile.judges else OsFile

    def _replace(self, name: str, method: Callable[..., Any] | None) -> None:
        """Gives the disk another method, or its own one."""
        if method is None:
            vars(self._disk).pop(name, None)
        else:
            setattr(self._disk, name, method)

    def _or_fail(self, name: str) -> Callable[..., Any]:
        own = getattr(type(self._disk), name)

        def method(path: str, *others: str) -> Any:
            self._fails(others[-1] if others else path, False)
            return own(self._disk, path, *others)

        return method

    def _open(self, path: str, *, create: bool = False) -> OsFile:
        if create and not os.path.exists(path):
            self._fails(path, False)
        file: OsFile = type(self._disk).open(self._disk, path, create=create)
        file.__class__ = _FaultyFile
        return file


class _FaultyFile(OsFile):
    """A file of which operations fail where a fault says so. An open file becomes one, and is one no more."""

    __slots__ = ()

    judges: ClassVar[list[Callable[[str, bool], None]]] = []
    """Judges of each broker of this process that has a fault."""

    def _judge(self, *, is_read: bool) -> None:
        path = _path_of(self._descriptor)
        for judge in self.judges:
            judge(path, is_read)

    def read(self, position: int, size_bytes: int) -> bytes:
        self._judge(is_read=True)
        return super().read(position, size_bytes)

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        self._judge(is_read=True)
        return super().read_now(position, size_bytes)

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        self._judge(is_read=False)
        return super().write(position, parts)

    def truncate(self, size_bytes: int) -> None:
        self._judge(is_read=False)
        super().truncate(size_bytes)

    def reserve(self, size_bytes: int) -> None:
        self._judge(is_read=False)
        super().reserve(size_bytes)

    def sync(self) -> None:
        self._judge(is_read=False)
        super().sync()


def _path_of(descriptor: int) -> str:
    """The path of an open file."""
    if sys.platform == "darwin":
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()
    return os.readlink(f"/proc/self/fd/{descriptor}")
