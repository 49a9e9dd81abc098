"""Certificates in every format, made by trustme and by Java's keytool."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

PASSWORD = "store-secret"
KINDS = ("JKS", "PKCS12", "PEM")


def keytool(*arguments: str) -> None:
    finished = subprocess.run(["keytool", *arguments], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stdout + finished.stderr


class Authority:
    """Certificates of one authority, as files in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = trustme.CA()
        self.pem = directory / "ca.pem"
        self.pem.write_bytes(self.ca.cert_pem.bytes())

    def issue(self, *names: str, **more: Any) -> trustme.LeafCert:
        return self.ca.issue_cert(*names, organization_unit_name="Tests", **more)

    def server(self) -> trustme.LeafCert:
        return self.issue("localhost", "127.0.0.1", "::1", common_name="broker")

    def write_pem(self, name: str, issued: trustme.LeafCert) -> pathlib.Path:
        """The key, in PKCS#8, and the chain."""
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        path = self.directory / f"{name}.pem"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + b"".join(one.bytes() for one in issued.cert_chain_pems)
        )
        fresh.replace(path)
        return path

    def key_store(self, kind: str, name: str, issued: trustme.LeafCert) -> dict[str, str]:
        """The options of Kafka and of its Java client."""
        if kind == "PEM":
            path = self.write_pem(name, issued)
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
        path = self.directory / f"{name}.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own",
                load_pem_private_key(issued.private_key_pem.bytes(), None),  # type: ignore[arg-type]
                load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()),
                [load_pem_x509_certificate(self.ca.cert_pem.bytes())],
                BestAvailableEncryption(PASSWORD.encode()),
            )
        )
        target = self.directory / f"{name}.{kind.lower()}"
        target.unlink(missing_ok=True)
        store = ["-srckeystore", str(path), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
        store += ["-destkeystore", str(target), "-deststoretype", kind, "-deststorepass", PASSWORD]
        keytool("-importkeystore", "-noprompt", *store)
        return {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(target),
            "ssl.keystore.password": PASSWORD,
        }

    def trust_store(self, kind: str, name: str = "trust") -> dict[str, str]:
        if kind == "PEM":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.pem)}
        path = self.directory / f"{name}.{kind.lower()}"
        if not path.exists():
            store = ["-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD]
            keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(self.pem), *store)
        return {
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(path),
            "ssl.truststore.password": PASSWORD,
        }
