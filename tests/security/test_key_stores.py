"""Key and trust stores. The binary ones were made by keytool of Java 17, with these passwords; what keytool
makes today is read in `compat_tests/security/test_tls_clients.py`."""

from __future__ import annotations

import pathlib
import ssl
import time
from collections.abc import Mapping

import pytest
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

from odradek.config.config_error import ConfigError
from odradek.config.secret import Secret
from odradek.security.key_stores import key_store_of, keys_as_file, trust_store_of
from odradek.security.tls import TlsSettings
from odradek.wire.distinguished_name import name_text, subject_of

FILES = pathlib.Path(__file__).with_name("key_store_files")
STORE, KEY, TRUST = "secret1", "secret2", "secret3"
MANY = 1 << 19
SECRETS = (STORE, KEY, TRUST, "pem-secret")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def issued(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("localhost", common_name="broker")


def chain_text(issued: trustme.LeafCert) -> str:
    return "".join(one.bytes().decode() for one in issued.cert_chain_pems)


def key_text(issued: trustme.LeafCert, password: str | None = None) -> str:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    sealing = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealing).decode()


def keys(**values: str) -> dict[str, str]:
    return {f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}


def loads(values: Mapping[str, str]) -> None:
    TlsSettings.of(values).server_context()


def test_a_jks_of_keytool_is_read_with_a_password_of_its_key() -> None:
    path = str(FILES / "a.jks")
    values = keys(keystore_location=path, keystore_password=STORE, key_password=KEY)
    store = key_store_of(values, "")
    assert store is not None
    assert name_text(subject_of(store.chain[0])) == "CN=Broker One,OU=x,O=Example,C=DE"
    loads(values)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "jks"])
def test_a_pkcs12_of_keytool_is_read_whichever_of_the_two_types_is_named(kind: str) -> None:
    loads(keys(keystore_location=str(FILES / "a.p12"), keystore_password=STORE, keystore_type=kind))


@pytest.mark.parametrize("name", ["t.jks", "t.p12"])
def test_a_trust_store_of_keytool_has_the_certificate(name: str) -> None:
    values = keys(truststore_location=str(FILES / name), truststore_password=TRUST)
    store = trust_store_of(values, "")
    assert store is not None
    assert [name_text(subject_of(one)) for one in store.certificates] == ["CN=Broker One,OU=x,O=Example,C=DE"]


def test_a_jks_trust_store_is_read_without_a_password_as_java_does() -> None:
    assert trust_store_of(keys(truststore_location=str(FILES / "t.jks")), "") is not None


def test_a_key_store_as_trust_store_trusts_its_own_certificate_only(
    tmp_path: pathlib.Path, authority: trustme.CA, issued: trustme.LeafCert
) -> None:
    path = tmp_path / "both.p12"
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    own = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    above = load_pem_x509_certificate(authority.cert_pem.bytes())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"a", key, own, [above], BestAvailableEncryption(b"pem-secret"))
    )
    values = keys(truststore_location=str(path), truststore_password="pem-secret")
    store = trust_store_of(values, "")
    assert store is not None
    assert store.certificates == (own.public_bytes(Encoding.DER),)
    found = key_store_of(keys(keystore_location=str(path), keystore_password="pem-secret"), "")
    assert found is not None
    assert found.chain == (own.public_bytes(Encoding.DER), above.public_bytes(Encoding.DER))


@pytest.mark.parametrize("password", [None, "pem-secret"])
@pytest.mark.parametrize("lines", ["\n", " ", "\r\n"])
def test_pem_is_read_inline_and_from_a_file_also_as_one_line(
    tmp_path: pathlib.Path, issued: trustme.LeafCert, password: str | None, lines: str
) -> None:
    key, chain = key_text(issued, password), chain_text(issued)
    more = {} if password is None else keys(key_password=password)
    key, chain = key.replace("\n", lines), chain.replace("\n", lines)
    loads({**keys(keystore_type="PEM", keystore_key=key, keystore_certificate_chain=chain), **more})
    path = tmp_path / "broker.pem"
    path.write_bytes((key + chain).encode())
    loads({**keys(keystore_type="PEM", keystore_location=str(path)), **more})


def test_what_java_writes_around_pem_does_not_matter(issued: trustme.LeafCert) -> None:
    attributes = "Bag Attributes\n    friendlyName: a\nKey Attributes: <No Attributes>\n"
    values = keys(
        keystore_type="PEM",
        keystore_key=attributes + key_text(issued),
        keystore_certificate_chain=attributes + chain_text(issued).strip(),
    )
    loads(values)


@pytest.mark.parametrize(
    "text",
    [
        "-" * MANY,
        "-----BEGIN A-----\n" * (MANY // 18),
        "-----BEGIN " + " " * MANY,
        "-----BEGIN A-----\n" + "a:b\n" * MANY,
    ],
)
def test_no_text_takes_long_to_be_refused(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        trust_store_of(keys(truststore_type="PEM", truststore_certificates=text), "")
    assert time.process_time() - began < 5


def refusals(
    issued: trustme.LeafCert, other: trustme.LeafCert, directory: pathlib.Path
) -> list[tuple[dict[str, str], str]]:
    jks, p12 = str(FILES / "a.jks"), str(FILES / "a.p12")
    key, chain, sealed = key_text(issued), chain_text(issued), key_text(issued, "pem-secret")
    pem = keys(keystore_type="PEM")
    (directory / "text").write_text("hello")
    (directory / "pem").write_text(key + chain)
    (directory / "two").write_text(key + key + chain)
    (directory / "no-key").write_text(chain)
    here = {name: str(directory / name) for name in ("text", "pem", "two", "no-key")}
    return [
        (pem | keys(keystore_key=key), "ssl.keystore.key is set without ssl.keystore.certificate.chain"),
        (
            pem | keys(keystore_certificate_chain=chain),
            "ssl.keystore.certificate.chain is set without ssl.keystore.key",
        ),
        (keys(keystore_key=key, keystore_certificate_chain=chain), "ssl.keystore.type is JKS"),
        (
            pem | keys(keystore_key=key, keystore_certificate_chain=chain, keystore_location=jks),
            "ssl.keystore.key and ssl.keystore.location exclude",
        ),
        (
            pem | keys(keystore_key=key, keystore_certificate_chain=chain, keystore_password=STORE),
            "ssl.keystore.key and ssl.keystore.password exclude",
        ),
        (keys(keystore_location=jks), "without ssl.keystore.password"),
        (keys(keystore_password=STORE), "ssl.keystore.password is set without ssl.keystore.location"),
        (pem | keys(keystore_location=here["pem"], keystore_password=STORE), "no ssl.keystore.password"),
        (keys(keystore_location=jks, keystore_password="wrong"), "damaged, or its password is wrong"),
        (keys(keystore_location=jks, keystore_password=STORE), "password of its private key is wrong"),
        (keys(keystore_location=p12, keystore_password="wrong"), "damaged, or its password is wrong"),
        (keys(keystore_location=str(FILES / "a.jceks"), keystore_password=STORE), "JCEKS"),
        (keys(keystore_location=str(FILES / "t.jks"), keystore_password=TRUST), "0 private keys"),
        (keys(keystore_location=str(FILES / "t.p12"), keystore_password=TRUST), "0 private keys"),
        (keys(keystore_location=here["pem"], keystore_password=STORE), "set ssl.keystore.type=PEM"),
        (keys(keystore_location=here["text"], keystore_password=STORE), "neither JKS nor PKCS12 nor PEM"),
        (pem | keys(keystore_location=jks), "is not PEM"),
        (keys(keystore_location="/no/such/file", keystore_password=STORE), "No such file"),
        (keys(keystore_location=str(directory), keystore_password=STORE), "Is a directory"),
        (
            keys(keystore_type="BCFKS", keystore_location=jks, keystore_password=STORE),
            "use one of PEM, PKCS12, JKS",
        ),
        (pem | keys(keystore_location=here["two"]), "2 private keys"),
        (pem | keys(keystore_location=here["no-key"]), "no private keys"),
        (pem | keys(keystore_location=here["pem"], key_password=KEY), "is not encrypted"),
        (pem | keys(keystore_key=sealed, keystore_certificate_chain=chain), "ssl.key.password is not set"),
        (
            pem | keys(keystore_key=sealed, keystore_certificate_chain=chain, key_password="wrong"),
            "ssl.key.password is wrong",
        ),
        (
            pem | keys(keystore_key=key, keystore_certificate_chain=chain_text(other)),
            "not that of the first certificate",
        ),
        (pem | keys(keystore_key=key, keystore_certificate_chain="nothing"), "no certificate"),
        (
            pem
            | keys(
                keystore_key=key,
                keystore_certificate_chain="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            ),
            "cannot be read",
        ),
        ({}, "ssl.keystore.location is missing"),
    ]


def test_a_store_that_cannot_be_used_is_refused_with_one_sentence_and_no_secret(
    tmp_path: pathlib.Path, authority: trustme.CA, issued: trustme.LeafCert
) -> None:
    secret = key_text(issued).splitlines()[1]
    for values, reason in refusals(issued, authority.issue_cert("other"), tmp_path):
        hidden = {
            name: Secret(value) if "location" not in name and "type" not in name else value
            for name, value in values.items()
        }
        with pytest.raises(ConfigError) as refused:
            TlsSettings.of(hidden, "Listener X: ").server_context()
        text = str(refused.value)
        assert reason in text, text
        assert text.startswith("Listener X: ")
        assert text.endswith(".")
        assert text.count("\n") == 0
        assert not any(one in text for one in (*SECRETS, secret))


def test_trust_stores_that_cannot_be_used_are_refused(tmp_path: pathlib.Path, authority: trustme.CA) -> None:
    text = authority.cert_pem.bytes().decode()
    (tmp_path / "ca").write_text(text)
    pem = keys(truststore_type="PEM")
    for values, reason in (
        (keys(truststore_certificates=text), "ssl.truststore.type is JKS"),
        (pem | keys(truststore_certificates=text, truststore_location="x"), "exclude each other"),
        (pem | keys(truststore_certificates=text, truststore_password="x"), "exclude each other"),
        (
            pem | keys(truststore_location=str(tmp_path / "ca"), truststore_password="x"),
            "has no ssl.truststore.password",
        ),
        (pem | keys(truststore_certificates="x"), "no certificate"),
        (keys(truststore_password="x"), "without ssl.truststore.location"),
        (keys(truststore_location=str(FILES / "t.p12")), "password is wrong"),
        (keys(truststore_location=str(FILES / "t.jks"), truststore_password="x"), "password is wrong"),
    ):
        with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
            trust_store_of(values, "")


def test_a_jks_is_refused_wherever_it_is_cut_or_a_bit_is_flipped(tmp_path: pathlib.Path) -> None:
    whole = (FILES / "a.jks").read_bytes()
    path = tmp_path / "damaged.jks"
    values = keys(keystore_location=str(path), keystore_password=STORE, key_password=KEY)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ConfigError):
            key_store_of(values, "")
    for position in range(0, len(whole), 5):
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        path.write_bytes(bytes(flipped))
        with pytest.raises(ConfigError):
            key_store_of(values, "")


def test_a_jks_without_a_password_and_with_nonsense_for_lengths_is_refused(tmp_path: pathlib.Path) -> None:
    whole = (FILES / "t.jks").read_bytes()
    path = tmp_path / "damaged.jks"
    refused = 0
    for position in range(4, len(whole) - 20):
        flipped = bytearray(whole)
        flipped[position] ^= 0x80
        path.write_bytes(bytes(flipped))
        try:
            trust_store_of(keys(truststore_location=str(path)), "")
        except ConfigError:
            refused += 1
    assert refused > 10


def test_a_pkcs12_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [one for one in sys.modules if one.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'odradek\[security\]'"):
        key_store_of(keys(keystore_location=str(FILES / "a.p12"), keystore_password=STORE), "")


def test_the_way_of_a_key_to_openssl_is_no_file_that_others_could_read(issued: trustme.LeafCert) -> None:
    values = keys(
        keystore_type="PEM", keystore_key=key_text(issued), keystore_certificate_chain=chain_text(issued)
    )
    store = key_store_of(values, "")
    assert store is not None
    with keys_as_file(store) as path:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        assert path.startswith("/proc/self/fd/") or pathlib.Path(path).stat().st_mode & 0o077 == 0
    assert not pathlib.Path(path).exists()
    assert "PRIVATE" not in repr(store)
