"""Keys and certificates, from what the options of a listener name: PEM, PKCS12, JKS.

A store is read whole and checked when the broker starts or a change is asked for; a fault is one ConfigError
that names the option. What a file is, its first bytes say and not its name: since Java 9 a `.jks` is often
PKCS12. PKCS12 needs the extra `odradek[security]`; JKS is read here.

Source: DefaultSslEngineFactory of Kafka 4.3; for JKS sun.security.provider.JavaKeyStore of OpenJDK.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import hmac
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.wire.distinguished_name import DamagedCertificate, issuer_of, last_octets, subject_of

STORE_BYTES_MAX = 16 * 1024 * 1024
"""A larger file is no key store."""
PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
_JKS_MAGIC, _JCEKS_MAGIC = bytes.fromhex("feedfeed"), bytes.fromhex("cececece")
_DER_SEQUENCE = b"\x30"
_WHITENER = b"Mighty Aphrodite"
_SHA1_BYTES = 20
_BOUNDARY = "-----"
_BASE64 = re.compile(r"[a-zA-Z0-9/+=\s]*")
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_ENCRYPTED = "ENCRYPTED PRIVATE KEY"
_TYPES = (PEM, JKS, PKCS12)


class _Names(NamedTuple):
    """The options of a key store or of a trust store."""

    kind: str
    location: str
    password: str


_KEYS = _Names("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password")
_TRUST = _Names("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password")


class FileState(NamedTuple):
    """With another one the file is another one."""

    modified_ns: int
    size_bytes: int
    inode: int

    @classmethod
    def of(cls, path: str) -> FileState | None:
        """None for a file that cannot be looked at."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and the certificates that go with it."""

    chain: tuple[bytes, ...]
    """In DER, the key's own first."""
    key: bytes = field(repr=False)
    """Private key as PEM; encrypted if there is a password."""
    password: str | None = field(repr=False)
    path: str | None = None
    state: FileState | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The certificates whose holders may vouch for others."""

    certificates: tuple[bytes, ...]
    """In DER."""
    path: str | None = None
    state: FileState | None = field(default=None, compare=False)


def key_store_of(values: Mapping[str, str], origin: str, *, is_start: bool = True) -> KeyStore | None:
    """The key store that the options name, None if they name none. `origin` goes before their names in
    messages: the prefix of a listener, or nothing. At a start the path may be a pipe (`/dev/fd/3`); while the
    event loop runs (`is_start` False) it has to be a regular file, since another may take for ever."""
    options = _Options(values, origin, _KEYS, is_start)
    key, chain = options.text("ssl.keystore.key"), options.text("ssl.keystore.certificate.chain")
    path, password = options.path, options.password
    if key is None and chain is not None:
        raise options.refusal("ssl.keystore.certificate.chain is set without ssl.keystore.key")
    if key is not None:
        if chain is None:
            raise options.refusal("ssl.keystore.key is set without ssl.keystore.certificate.chain")
        options.refuse_inline_with_others("ssl.keystore.key")
        return _pem_key_store(key, chain, options, None, None)
    if path is None:
        options.refuse_password_alone()
        return None
    if options.kind != PEM and password is None:
        raise options.refusal("ssl.keystore.location is set without ssl.keystore.password")
    state, content = options.read(path)
    if options.kind == PEM:
        if password is not None:
            raise options.refusal("a PEM key store has no ssl.keystore.password: only ssl.key.password")
        text = options.as_text(content)
        return _pem_key_store(text, text, options, path, state)
    assert password is not None
    entries = options.entries(content, password)
    if len(entries.keys) != 1:
        raise options.refusal(f"{path} has {len(entries.keys)} private keys, and one is needed")
    pem, chain_found = entries.keys[0]
    if not chain_found:
        raise options.refusal(f"{path} has a private key without a certificate")
    return KeyStore(chain_found, pem, None, path, state)


def trust_store_of(values: Mapping[str, str], origin: str, *, is_start: bool = True) -> TrustStore | None:
    """Trust store of the options, as `key_store_of`."""
    options = _Options(values, origin, _TRUST, is_start)
    inline, path = options.text("ssl.truststore.certificates"), options.path
    if inline is not None:
        options.refuse_inline_with_others("ssl.truststore.certificates")
        return TrustStore(_pem_certificates(inline, options))
    if path is None:
        options.refuse_password_alone()
        return None
    state, content = options.read(path)
    if options.kind == PEM:
        if options.password is not None:
            raise options.refusal("a PEM trust store has no ssl.truststore.password")
        return TrustStore(_pem_certificates(options.as_text(content), options), path, state)
    certificates = options.entries(content, options.password).trusted
    if not certificates:
        raise options.refusal(f"{path} has no certificate that is trusted")
    return TrustStore(certificates, path, state)


class _Entries(NamedTuple):
    keys: list[tuple[bytes, tuple[bytes, ...]]]
    """Private keys as PEM, each with its chain."""
    trusted: tuple[bytes, ...]


class _Options:
    """The options of one store of one listener."""

    def __init__(self, values: Mapping[str, str], origin: str, names: _Names, is_start: bool) -> None:
        self._values = values
        self._is_start = is_start
        self._origin = origin
        self._names = names
        self.path = self.text(names.location)
        self.password = self.text(names.password)
        self.key_password = self.text("ssl.key.password")
        self.kind = (self.text(names.kind) or JKS).upper()
        if self.kind not in _TYPES:
            raise self.refusal(f"{names.kind}={self.kind} is not read here: use one of PEM, PKCS12, JKS")

    def text(self, name: str) -> str | None:
        """An empty text is none."""
        return self._values.get(name) or None

    def refusal(self, sentence: str) -> ConfigError:
        return ConfigError(f"{self._origin}{sentence}.")

    def refuse_inline_with_others(self, name: str) -> None:
        if self.kind != PEM:
            raise self.refusal(f"{name} is PEM, and {self._names.kind} is {self.kind}: set it to PEM")
        for other, value in ((self._names.location, self.path), (self._names.password, self.password)):
            if value is not None:
                raise self.refusal(f"{name} and {other} exclude each other")

    def refuse_password_alone(self) -> None:
        if self.password is not None:
            raise self.refusal(f"{self._names.password} is set without {self._names.location}")

    def read(self, path: str) -> tuple[FileState | None, bytes]:
        state = FileState.of(path)
        try:
            with open(path, "rb", opener=None if self._is_start else _without_waiting) as file:
                if not self._is_start and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise self.refusal(f"{self._names.location}={path} is not a regular file")
                content = file.read(STORE_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not a path"
            raise self.refusal(f"{self._names.location}={path} cannot be read: {reason}") from None
        if len(content) > STORE_BYTES_MAX:
            raise self.refusal(f"{path} is too large for a key store")
        return state, content

    def as_text(self, content: bytes) -> str:
        if content[:4] in (_JKS_MAGIC, _JCEKS_MAGIC) or content[:1] == _DER_SEQUENCE:
            raise self.refusal(f"{self.path} is not PEM: set {self._names.kind} to what it is")
        return content.decode("latin-1")

    def entries(self, content: bytes, password: str | None) -> _Entries:
        """Entries of a JKS or PKCS12: Java takes either under both names."""
        if content[:4] == _JCEKS_MAGIC:
            raise self.refusal(f"{self.path} is a JCEKS key store, which is not read here: use PKCS12")
        if content[:4] == _JKS_MAGIC:
            reads_key = self._names is _KEYS
            try:
                return _Jks(content, password, self.key_password or password, reads_key).entries()
            except _DamagedStore as error:
                raise self.refusal(f"{self.path} cannot be read as JKS: {error}") from None
        if content[:1] == _DER_SEQUENCE:
            return self._pkcs12(content, password)
        if content.lstrip()[:5] == b"-----":
            raise self.refusal(f"{self.path} is PEM: set {self._names.kind}=PEM")
        raise self.refusal(f"{self.path} is neither JKS nor PKCS12 nor PEM")

    def _pkcs12(self, content: bytes, password: str | None) -> _Entries:
        try:
            from cryptography.hazmat.primitives.serialization import (
                Encoding,
                NoEncryption,
                PrivateFormat,
                pkcs12,
            )
        except ImportError:
            raise self.refusal(
                f"{self.path} is PKCS12, which needs a package more: pip install 'odradek[security]'"
            ) from None
        try:
            found = pkcs12.load_pkcs12(content, None if password is None else password.encode())
        except Exception:
            # Its reasons are many classes; none knows whether the password or the file is wrong.
            raise self.refusal(
                f"{self.path} cannot be read as PKCS12: the file is damaged, or its password is wrong"
            ) from None
        others = [one.certificate.public_bytes(Encoding.DER) for one in found.additional_certs]
        if found.key is None:
            return _Entries([], tuple(others))
        pem = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        own = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.DER)]
        chain = _chain(own, others)
        # As in Java: of a key's own chain only the first certificate is trusted.
        return _Entries([(pem, chain)], (*own, *(one for one in others if one not in chain)))


def _without_waiting(path: str, flags: int) -> int:
    """For `open`: a pipe opens at once, also if nobody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _chain(own: Sequence[bytes], others: Sequence[bytes]) -> tuple[bytes, ...]:
    """The certificate of a key and those that vouch for it, in their order."""
    chain = list(own)
    by_subject = {subject_of(one): one for one in others}
    while chain:
        issuer = by_subject.pop(issuer_of(chain[-1]), None)
        if issuer is None or issuer in chain:
            break
        chain.append(issuer)
    return tuple(chain)


# PEM


def to_pem(certificates: Iterable[bytes]) -> str:
    """The text of certificates in DER."""
    return "".join(_pem("CERTIFICATE", certificate) for certificate in certificates)


def _pem(label: str, content: bytes) -> str:
    text = binascii.b2a_base64(content, newline=False).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _pem_entries(text: str, options: _Options) -> Iterator[tuple[str, bytes]]:
    """Label and content of each. What stands between them does not count. In a file of properties all lines
    of a value are one."""
    parts = text.split(_BOUNDARY)
    for begin, body, end in zip(parts, parts[1:], parts[2:], strict=False):
        label = " ".join(begin.split()[1:])
        if begin.split()[:1] == ["BEGIN"] and end.split() == ["END", *label.split()]:
            # Older keys of OpenSSL have attributes before their content.
            content = "".join(line for line in body.splitlines() if ":" not in line)
            if not _BASE64.fullmatch(content):
                raise options.refusal(f"a PEM entry {label[:40]} has no base64")
            try:
                yield label, binascii.a2b_base64(content)
            except binascii.Error:
                raise options.refusal(f"a PEM entry {label[:40]} has no base64") from None


def _pem_certificates(text: str, options: _Options) -> tuple[bytes, ...]:
    certificates = tuple(content for label, content in _pem_entries(text, options) if label in _CERTIFICATES)
    if not certificates:
        raise options.refusal("the PEM has no certificate")
    for certificate in certificates:
        _check_certificate(certificate, options)
    return certificates


def _check_certificate(certificate: bytes, options: _Options) -> None:
    try:
        subject_of(certificate)
    except DamagedCertificate as error:
        raise options.refusal(f"a certificate of the PEM cannot be read: {error}") from None


def _pem_key_store(
    key_text: str, chain_text: str, options: _Options, path: str | None, state: FileState | None
) -> KeyStore:
    keys = [entry for entry in _pem_entries(key_text, options) if entry[0].endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise options.refusal(f"the PEM has {len(keys) or 'no'} private keys, and one is needed")
    label, content = keys[0]
    password = options.key_password
    if label == _ENCRYPTED and password is None:
        raise options.refusal("the private key is encrypted, and ssl.key.password is not set")
    if label != _ENCRYPTED and password is not None:
        raise options.refusal("ssl.key.password is set, and the private key of the PEM is not encrypted")
    chain = _pem_certificates(chain_text, options)
    return KeyStore(chain, _pem(label, content).encode(), password, path, state)


@contextlib.contextmanager
def keys_as_file(store: KeyStore) -> Iterator[str]:
    """A path where Python's `ssl`, which takes nothing but paths, finds the chain and the key: in memory
    where the system can, else in a file for this user alone that goes at once."""
    content = to_pem(store.chain).encode() + store.key
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("odradek-keys", os.MFD_CLOEXEC)
        path, is_file = f"/proc/self/fd/{descriptor}", False
    else:
        descriptor, path = tempfile.mkstemp()  # with mode 0600
        is_file = True
    try:
        os.write(descriptor, content)
        yield path
    finally:
        os.close(descriptor)
        if is_file:
            os.unlink(path)


# JKS


class _DamagedStore(Exception):
    """A sentence without its end."""


class _Jks:
    """Entries of keys and of certificates, and a digest of it all with the password."""

    def __init__(
        self, content: bytes, password: str | None, key_password: str | None, reads_key: bool
    ) -> None:
        self._content = content
        self._position = 4
        self._password, self._key_password = password, key_password
        self._reads_key = reads_key
        """A trust store's keys are not asked for, and have perhaps another password."""

    def entries(self) -> _Entries:
        self._check_digest()
        version, count = self._number(4), self._number(4)
        if version not in (1, 2):
            raise _DamagedStore(f"its version is {version}")
        keys: list[tuple[bytes, tuple[bytes, ...]]] = []
        trusted: list[bytes] = []
        for _ in range(count):
            kind = self._number(4)
            self._take(self._number(2))  # its name
            self._take(8)  # its time
            if kind == 1:
                sealed = self._take(self._number(4))
                chain = tuple(self._certificate(version) for _ in range(self._number(4)))
                if self._reads_key:
                    keys.append((_pem("PRIVATE KEY", self._unsealed(sealed)).encode(), chain))
                trusted += chain[:1]
            elif kind == 2:
                trusted.append(self._certificate(version))
            else:
                raise _DamagedStore(f"an entry is of kind {kind}")
        return _Entries(keys, tuple(trusted))

    def _check_digest(self) -> None:
        """Without a password Java does not look at it, and neither do we."""
        if len(self._content) < 12 + _SHA1_BYTES:
            raise _DamagedStore("it is cut off")
        body, digest = self._content[:-_SHA1_BYTES], self._content[-_SHA1_BYTES:]
        self._content = body
        if self._password is None:
            return
        found = hashlib.sha1(self._password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(found, digest):
            raise _DamagedStore("the file is damaged, or its password is wrong")

    def _unsealed(self, sealed: bytes) -> bytes:
        """The key in PKCS#8: it is XORed with a stream of digests of password and salt."""
        assert self._key_password is not None
        try:
            content = last_octets(sealed)
        except DamagedCertificate as error:
            raise _DamagedStore(str(error)) from None
        password = self._key_password.encode("utf-16-be")
        digest, sealed_key = content[:_SHA1_BYTES], content[_SHA1_BYTES:-_SHA1_BYTES]
        stream = bytearray()
        while len(stream) < len(sealed_key):
            digest = hashlib.sha1(password + digest).digest()
            stream += digest
        key = bytes(left ^ right for left, right in zip(sealed_key, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(password + key).digest(), content[-_SHA1_BYTES:]):
            raise _DamagedStore("the password of its private key is wrong (ssl.key.password)")
        return key

    def _certificate(self, version: int) -> bytes:
        if version == 2:
            self._take(self._number(2))  # its type, X.509
        return self._take(self._number(4))

    def _number(self, size_bytes: int) -> int:
        return int.from_bytes(self._take(size_bytes), "big")

    def _take(self, size_bytes: int) -> bytes:
        begin, self._position = self._position, self._position + size_bytes
        if self._position > len(self._content):
            raise _DamagedStore("it is cut off")
        return self._content[begin : self._position]
