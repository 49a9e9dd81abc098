"""A key distribution centre of MIT Kerberos on loopback: its principals, their keytabs, its settings.

Debian: krb5-kdc, krb5-admin-server, krb5-user.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from types import TracebackType

import pytest

from compat_tests.clients import wait_until
from odradek.embedding.free_port import free_port
from tools import environment

REALM = "TEST.EXAMPLE"
_SETTINGS = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
 clockskew = {skew}
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_CENTRE = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
 }}
[logging]
 kdc = FILE:{directory}/kdc.log
"""


def _program(name: str) -> str:
    found = environment.system_program(name)
    assert found is not None, (
        f"missing: {name} (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)"
    )
    return found


class Centre:
    """Use as a context manager. `realm` is the one that it serves; `skew` seconds may clocks differ."""

    def __init__(self, realm: str = REALM, skew: int = 300) -> None:
        self.realm = realm
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kerberos-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.settings = self.directory / "krb5.conf"
        self.settings.write_text(_SETTINGS.format(realm=realm, port=self._port, skew=skew))
        centre = self.directory / "kdc.conf"
        centre.write_text(_CENTRE.format(realm=realm, port=self._port, directory=self.directory))
        self.environment = {"KRB5_CONFIG": str(self.settings), "KRB5_KDC_PROFILE": str(centre)}

    def __enter__(self) -> Centre:
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", self.realm)
        log = (self.directory / "output").open("wb")
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **self.environment},
        )
        wait_until(self._answers, "the centre listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "output").read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def _run(self, program: str, *arguments: str, **variables: str) -> None:
        finished = subprocess.run(
            [_program(program), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **self.environment, **variables},
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr

    def administer(self, query: str) -> None:
        """A command of kadmin."""
        self._run("kadmin.local", "-q", query)

    def keytab(self, *principals: str, name: str | None = None) -> pathlib.Path:
        """Makes principals and a file with their keys."""
        path = self.directory / f"{name or principals[0].replace('/', '_')}.keytab"
        for principal in principals:
            self.administer(f"addprinc -randkey {principal}")
            self.administer(f"ktadd -k {path} {principal}")
        return path

    def new_keys(self, principal: str, path: pathlib.Path) -> None:
        """Gives a principal new keys, and a file with them alone the place of the old one."""
        fresh = path.with_suffix(".fresh")
        self.administer(f"ktadd -k {fresh} {principal}")
        os.replace(fresh, path)

    def ticket(self, principal: str, keytab: pathlib.Path, lifetime: str = "10m") -> pathlib.Path:
        """The file of a fresh ticket."""
        path = self.directory / f"{principal.replace('/', '_')}.ticket"
        self._run("kinit", "-c", f"FILE:{path}", "-l", lifetime, "-k", "-t", str(keytab), principal)
        return path


def in_this_process(centre: Centre) -> Iterator[None]:
    """Within it the library of this process, and of those that it starts, uses the centre."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in centre.environment.items():
            patch.setenv(name, value)
        patch.setenv("KRB5RCACHENAME", f"file2:{centre.directory / 'replays'}")
        patch.setenv("KRB5CCNAME", f"FILE:{centre.directory / 'no.ticket'}")
        yield
