"""Known secrets of every kind, searched for in all that a broker lets out: logs at DEBUG, responses, errors,
refusals of starts, tracebacks, what its commands print, and the reprs of its objects."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gc
import logging
import os
import pathlib
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

from compat_tests.clients import wait_until
from compat_tests.security.certificates import Authority
from compat_tests.security.served import Served
from odradek.config.options import BROKER_OPTIONS
from odradek.coordinator.security import scram_users
from odradek.coordinator.security.delegation_tokens import TokenRules
from odradek.embedding.free_port import free_port
from odradek.server.security.sasl import plain
from odradek.server.security.signed_tokens import SignedValidator
from odradek.server.security.tokens import TokenLogins
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_configs import AlterableConfig as LegacyConfig
from odradek.wire.messages.alter_configs import AlterConfigsRequest
from odradek.wire.messages.alter_configs import AlterConfigsResource as LegacyResource
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.scram import Keys, ScramClient, keys_of, salted_password
from tests.raw_client import RawClient
from tests.server.jwt_authority import jwk, jwks, new_key, signed

MARK = "known-secret"
"""In every secret that is a text."""
STORE, TRUST, PASSPHRASE = f"{MARK}-store", f"{MARK}-trust", f"{MARK}-passphrase"
ADMIN, SCRAM_LOGIN, ADDED, ALTERED = (f"{MARK}-{one}" for one in ("admin", "login", "added", "altered"))
FIRST = f"{MARK}-first"
WRONG = f"{MARK}-of-a-guess"
SALT, ITERATIONS, SCRAM_SHA_256 = b"salt of the test", 4096, 1
SALTED = salted_password(SCRAM_SHA_256, ALTERED, SALT, ITERATIONS)
KEYS: Keys = keys_of(SCRAM_SHA_256, SALTED)
_SECURITY = "org.apache.kafka.common.security"
PLAIN_JAAS = (
    f'{_SECURITY}.plain.PlainLoginModule required username="admin" password="{ADMIN}" user_admin="{ADMIN}";'
)
SCRAM_JAAS = f'{_SECURITY}.scram.ScramLoginModule required username="admin" password="{SCRAM_LOGIN}";'
FAILED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
TOKEN_KEY = f"{MARK}-of-tokens"
AUDIENCE, ISSUER = "kafka", "us"
BROKER, TOPIC, SET, DELETE, APPEND, SUBTRACT = 4, 2, 0, 1, 2, 3
SECONDS = 60.0


@dataclass
class Told:
    """All that came out of a broker, by where it came from."""

    texts: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, where: str, content: str | bytes) -> None:
        self.texts.append((where, content.encode() if isinstance(content, str) else content))

    def found(self, secrets: Mapping[str, Sequence[bytes]]) -> set[tuple[str, str]]:
        """Where which secret is."""
        return {
            (where, name)
            for where, content in self.texts
            for name, forms in secrets.items()
            if any(form in content for form in forms)
        }


def forms_of(secret: bytes) -> list[bytes]:
    """A secret as it is, in hex, in base64, and as Python prints it."""
    return [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]


def key_forms(pem: bytes) -> list[bytes]:
    """Lines of the inside of a key, such as no certificate has them."""
    lines = pem.split(b"-----BEGIN CERTIFICATE")[0].splitlines()
    return [line for line in lines if len(line) == 64][1:]


@dataclass
class Stage:
    """The settings of a broker with each kind of secret, and the secrets. `jwts` are right and wrong ones,
    with the error code of a login."""

    settings: dict[str, str]
    secrets: dict[str, Sequence[bytes]]
    ports: dict[str, int]
    jwts: list[tuple[str, int]]


def set_up(directory: pathlib.Path) -> Stage:
    authority = Authority(directory)
    issued = authority.server()
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    store = directory / "keys.p12"
    store.write_bytes(_pkcs12(issued, authority, STORE))
    trust = directory / "trust.p12"
    trust.write_bytes(_pkcs12(issued, authority, TRUST))
    inline = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode())
    )
    open_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    signer, stranger = new_key(), new_key()
    keys = directory / "jwks.json"
    keys.write_bytes(jwks(jwk(signer, kid="k1")))
    now_s = int(time.time())
    jwts = [
        (new_jwt(signer, now_s), 0),
        (new_jwt(signer, now_s - 7200), FAILED),
        (new_jwt(stranger, now_s), FAILED),
    ]
    ports = {name: free_port() for name in ("ADMIN", "SEALED", "INLINE")}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "ADMIN:SASL_PLAINTEXT,SEALED:SSL,INLINE:SSL",
        "inter.broker.listener.name": "ADMIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "delegation.token.secret.key": TOKEN_KEY,
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.admin.plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.admin.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
        "listener.name.sealed.ssl.keystore.type": "PKCS12",
        "listener.name.sealed.ssl.keystore.location": str(store),
        "listener.name.sealed.ssl.keystore.password": STORE,
        "listener.name.sealed.ssl.truststore.type": "PKCS12",
        "listener.name.sealed.ssl.truststore.location": str(trust),
        "listener.name.sealed.ssl.truststore.password": TRUST,
        "listener.name.inline.ssl.keystore.type": "PEM",
        "listener.name.inline.ssl.keystore.key": inline.decode(),
        "listener.name.inline.ssl.keystore.certificate.chain": chain.decode(),
        "listener.name.inline.ssl.key.password": PASSPHRASE,
        "sasl.oauthbearer.client.credentials.client.secret": f"{MARK}-client",
        "sasl.oauthbearer.assertion.private.key.passphrase": f"{MARK}-assertion",
    }
    secrets: dict[str, Sequence[bytes]] = {
        "a password": [MARK.encode(), base64.b64encode(MARK.encode())[:-4]],
        "the key of a listener": [*key_forms(inline), *key_forms(open_key)],
        "a salted password": forms_of(SALTED),
        "the stored key of a user": forms_of(KEYS.stored),
        "the server key of a user": forms_of(KEYS.server),
        "the secret key of tokens": forms_of(TOKEN_KEY.encode()),
        **{f"JWT {number}": jwt_forms(jwt) for number, (jwt, _) in enumerate(jwts)},
    }
    return Stage(settings, secrets, ports, jwts)


def new_jwt(key: Any, now_s: int) -> str:
    claims = {"sub": "admin", "iat": now_s, "exp": now_s + 3600, "aud": AUDIENCE, "iss": ISSUER}
    return str(signed(key, claims))


def jwt_forms(jwt: str) -> list[bytes]:
    """Its signature: without it nobody can use the rest."""
    signature = jwt.rpartition(".")[2]
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    return [signature.encode(), *forms_of(raw), base64.b64encode(jwt.encode())]


def _pkcs12(issued: trustme.LeafCert, authority: Authority, password: str) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        b"own",
        load_pem_private_key(issued.private_key_pem.bytes(), None),  # type: ignore[arg-type]
        load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()),
        [load_pem_x509_certificate(authority.ca.cert_pem.bytes())],
        BestAvailableEncryption(password.encode()),
    )


def write_properties(path: pathlib.Path, settings: Mapping[str, str]) -> pathlib.Path:
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    path.chmod(0o600)
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek", *arguments]


def environment(**more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))}
    return {**ours, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one), **more}


def run(told: Told, where: str, *arguments: str, stdin: str = "", **more: str) -> int:
    """A command that ends by itself."""
    done = subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=SECONDS,
        check=False,
    )
    told.add(where, done.stdout + done.stderr)
    return done.returncode


# What clients do


class Client(RawClient):
    """Notes what it is told, byte for byte."""

    def __init__(self, port: int, told: Told) -> None:
        super().__init__(port, timeout_s=SECONDS)
        self._told = told

    def receive_frame(self) -> bytes:
        frame = super().receive_frame()
        self._told.add("a response", frame)
        return frame

    def log_in(self, token: bytes | None = None) -> int:
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0admin\0{ADMIN}".encode() if token is None else token
        return int(self.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code)

    def log_in_with_scram(self, user: str, password: str) -> int:
        self.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        scram = ScramClient("SCRAM-SHA-256", user, password, "nonce")
        challenge = self.ask(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
        final = scram.final(bytes(challenge.auth_bytes))
        return int(self.ask(SaslAuthenticateRequest(auth_bytes=final), 2).error_code)

    def log_in_with_token(self, token_id: str, password: str) -> int:
        """`password` is the HMAC in base64."""
        self.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        scram = ScramClient("SCRAM-SHA-256", token_id, password, "nonce", "tokenauth=true")
        challenge = self.ask(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
        final = scram.final(bytes(challenge.auth_bytes))
        return int(self.ask(SaslAuthenticateRequest(auth_bytes=final), 2).error_code)

    def log_in_with_jwt(self, jwt: str, more: str = "") -> int:
        self.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        first = f"n,,\x01auth=Bearer {jwt}\x01{more}\x01".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        if answer.auth_bytes:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        return int(answer.error_code)


def drive_tokens(stage: Stage, told: Told, hmacs: list[bytes]) -> None:
    """Logins with tokens of both kinds, and requests about them. `hmacs` gets the forms of the HMAC, which is
    in the answers that give it to its owner, and nowhere else: these are not looked at."""
    port = stage.ports["ADMIN"]
    for jwt, code in stage.jwts:
        with Client(port, told) as client:
            assert client.log_in_with_jwt(jwt) == code
        with Client(port, told) as client:
            assert client.log_in_with_jwt(jwt, more="no pair") == FAILED
    with Client(port, Told()) as owner:
        assert owner.log_in() == 0
        created = owner.ask(new_token(), 3)
        assert created.error_code == 0
        hmac = bytes(created.hmac)
        hmacs += forms_of(hmac)
        (listed,) = owner.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens[-1:]
        assert len(bytes(listed.hmac)) == len(hmac)
    password = base64.b64encode(hmac).decode()
    for token_id, given, code in (
        (created.token_id, password, 0),
        (created.token_id, WRONG, FAILED),
        ("no-token", password, FAILED),
    ):
        with Client(port, told) as client:
            assert client.log_in_with_token(token_id, given) == code
            if not code:
                assert client.ask(new_token(), 3).error_code, "tokens make no tokens"
                assert client.ask(DescribeDelegationTokenRequest(owners=None), 3).error_code
    with Client(port, told) as client:
        assert client.log_in() == 0
        for given_hmac, is_right in ((hmac, True), (hmac[:-1], False), (password.encode(), False)):
            renewal = RenewDelegationTokenRequest(hmac=given_hmac, renew_period_ms=3_600_000)
            assert (client.ask(renewal, 2).error_code == 0) is is_right
            expiry = ExpireDelegationTokenRequest(hmac=given_hmac, expiry_time_period_ms=3_600_000)
            assert (client.ask(expiry, 2).error_code == 0) is is_right


def new_token() -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )


def drive_logins(port: int, told: Told) -> None:
    for token, code in (
        (None, 0),
        (f"\0admin\0{WRONG}".encode(), FAILED),
        (f"\0nobody\0{ADMIN}".encode(), FAILED),
        (f"other\0admin\0{ADMIN}".encode(), FAILED),
        (f"\0admin\0{ADMIN}\0more".encode(), FAILED),
        (ADMIN.encode(), FAILED),
        (b"\xff" + ADMIN.encode(), FAILED),
        (f"\0\0{ADMIN}".encode(), FAILED),
    ):
        with Client(port, told) as client:
            assert client.log_in(token) == code
    for user, password, code in (
        ("first", FIRST, 0),
        ("added", ADDED, 0),
        ("first", WRONG, FAILED),
        ("nobody", WRONG, FAILED),
    ):
        with Client(port, told) as client:
            assert client.log_in_with_scram(user, password) == code
    for nonsense in (ADMIN.encode() * 10, b"\0\0\0\x20" + ADMIN.encode() * 2):
        with Client(port, told) as client:
            client.send(nonsense)
            told.add("what comes before the end", client.read_to_end())
    with Client(port, told) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.send(len(WRONG).to_bytes(4, "big") + WRONG.encode())
        told.add("what comes before the end", client.read_to_end())


def drive_administration(port: int, told: Told, node: str = "1") -> None:
    with Client(port, told) as client:
        assert client.log_in() == 0
        assert alter_user(client, ITERATIONS) == 0
        assert alter_user(client, ITERATIONS // 2) != 0
        alter_options(client, node)
        describe(client, node)
        client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    with Client(port, told) as client:
        assert client.log_in_with_scram("altered", ALTERED) == 0


def alter_user(client: Client, iterations: int) -> int:
    upsertion = ScramCredentialUpsertion(
        name="altered",
        mechanism=SCRAM_SHA_256,
        iterations=iterations,
        salt=SALT,
        salted_password=SALTED,
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    (result,) = client.ask(request, 0).results
    return int(result.error_code)


def sensitive_names() -> list[str]:
    """Of options, with and without the prefixes that they may have."""
    plain_names = [name for name, option in BROKER_OPTIONS.items() if option.is_sensitive]
    prefixes = ("", "listener.name.sealed.", "listener.name.admin.plain.", "listener.name.nowhere.")
    return [prefix + name for prefix in prefixes for name in plain_names]


def alter_options(client: Client, node: str) -> None:
    """Values that cannot be: each kind of change, of each option that may be a secret, for each owner."""
    refusals = 0
    for kind, owner in ((BROKER, node), (BROKER, ""), (TOPIC, "a-topic"), (BROKER, "99")):
        for name in sensitive_names():
            value = f"{MARK} required 'nonsense"
            for operation in (SET, APPEND, SUBTRACT):
                change = AlterableConfig(name=name, config_operation=operation, value=value)
                resource = AlterConfigsResource(resource_type=kind, resource_name=owner, configs=[change])
                request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
                refusals += client.ask(request, 1).responses[0].error_code != 0
            legacy = LegacyResource(
                resource_type=kind, resource_name=owner, configs=[LegacyConfig(name=name, value=value)]
            )
            client.ask(AlterConfigsRequest(resources=[legacy], validate_only=True), 2)
    assert refusals > 50
    right = AlterableConfig(
        name="listener.name.sealed.ssl.keystore.password", config_operation=SET, value=STORE
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=node, configs=[right])
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def describe(client: Client, node: str) -> None:
    for owner in (node, ""):
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name=owner, configuration_keys=None)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        (result,) = client.ask(request, 4).results
        assert result.error_code == 0
        hidden = {one.name for one in result.configs if one.is_sensitive}
        if owner:
            assert {"listener.name.sealed.ssl.keystore.password", "ssl.key.password"} <= hidden
        assert all(one.value is None for one in result.configs if one.is_sensitive)


def touch_tls(ports: Mapping[str, int]) -> None:
    """Handshakes that are done and that fail."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name in ("SEALED", "INLINE"):
        with RawClient(ports[name]) as client, context.wrap_socket(client.socket) as sealed:
            assert sealed.version() is not None
        with RawClient(ports[name]) as client:
            client.send(ADMIN.encode())
            client.read_to_end()


# A broker of its own


def is_refused(told: Told, path: pathlib.Path, settings: Mapping[str, str], **more: str) -> None:
    data = path.parent / "refused-data"
    file = write_properties(path.parent / "refused.properties", {**settings, "log.dirs": str(data)})
    for level in ("info", "debug"):
        assert run(told, "a refused start", "serve", str(file), "--log-level", level, **more) == 1


BAD: dict[str, dict[str, str]] = {
    "a wrong password of a store": {"listener.name.sealed.ssl.keystore.password": WRONG},
    "a wrong password of a trust store": {"listener.name.sealed.ssl.truststore.password": WRONG},
    "a wrong passphrase": {"listener.name.inline.ssl.key.password": WRONG},
    "no key": {"listener.name.inline.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{WRONG}\n"},
    "no certificate": {"listener.name.inline.ssl.keystore.certificate.chain": WRONG},
    "no login module": {"listener.name.admin.plain.sasl.jaas.config": WRONG},
    "an open text": {"listener.name.admin.plain.sasl.jaas.config": PLAIN_JAAS.replace('";', ";")},
    "a login module too many": {"listener.name.admin.plain.sasl.jaas.config": PLAIN_JAAS * 2},
    "a number in place of a text": {
        "listener.name.admin.plain.sasl.jaas.config": PLAIN_JAAS.replace(";", f" x=1 y={WRONG};")
    },
    "no users": {
        "listener.name.admin.plain.sasl.jaas.config": PLAIN_JAAS.replace("user_", "resu_"),
    },
    "the login of another mechanism": {"listener.name.admin.plain.sasl.jaas.config": SCRAM_JAAS},
    "an option that there is not": {"listener.name.admin.ssl.keystore.pasword": WRONG},
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return set_up(tmp_path_factory.mktemp("secrets"))


def test_a_search_finds_secrets(stage: Stage) -> None:
    told = Told()
    for name, forms in stage.secrets.items():
        told.add(name, b"before " + forms[0] + b" after")
    told.add("in base64", base64.b64encode(ADMIN.encode()))
    assert {name for _, name in told.found(stage.secrets)} == set(stage.secrets)
    assert ("in base64", "a password") in told.found(stage.secrets)


def test_no_refusal_of_a_start_shows_a_secret(stage: Stage, tmp_path: pathlib.Path) -> None:
    told = Told()
    path = tmp_path / "server.properties"
    for changes in BAD.values():
        is_refused(told, path, {**stage.settings, **changes})
    is_refused(told, path, stage.settings, ODRADEK_ADD_SCRAM=f"SCRAM-SHA-256=[name=a,password={WRONG}")
    is_refused(told, path, stage.settings, ODRADEK_ADD_SCRAM=f"{WRONG}=[name=a,password={WRONG}]")
    assert all(content for _, content in told.texts)
    assert not any(b"Traceback" in content for _, content in told.texts)
    assert told.found(stage.secrets) == set()


@contextlib.contextmanager
def serving(stage: Stage, directory: pathlib.Path, told: Told) -> Iterator[None]:
    """A broker that logs at DEBUG; its log is added at the end."""
    file = write_properties(
        directory / "server.properties", {**stage.settings, "log.dirs": str(directory / "data")}
    )
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("serve", str(file), "--log-level", "debug"),
            stdout=output,
            stderr=output,
            env=environment(ODRADEK_ADD_SCRAM=f"SCRAM-SHA-256=[name=first,password={FIRST}]"),
        )
    try:
        wait_until(lambda: b" ready on " in log.read_bytes() or process.poll() is not None, "it is ready")
        assert process.poll() is None, log.read_text()
        told.add("its arguments", pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes())
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)
        told.add("the log", log.read_bytes())


def test_nothing_that_a_broker_says_has_a_secret(stage: Stage, tmp_path: pathlib.Path) -> None:
    told, hmacs = Told(), list[bytes]()
    data = tmp_path / "data"
    added = ["users", "add", "added", "--mechanism", "SCRAM-SHA-256", "--data-dir", str(data)]
    assert run(told, "users", *added, stdin=f"{ADDED}\n") == 0
    with serving(stage, tmp_path, told):
        drive_logins(stage.ports["ADMIN"], told)
        touch_tls(stage.ports)
        drive_administration(stage.ports["ADMIN"], told)
        drive_tokens(stage, told, hmacs)
    with serving(stage, tmp_path, told):
        # What was changed at run time is read again.
        drive_administration(stage.ports["ADMIN"], told)
    assert run(told, "users", "users", "list", "--data-dir", str(data)) == 0
    assert run(told, "dump", "dump", str(data), "--records", "--include-empty") == 0
    assert run(told, "dump", "dump", str(data), "--json") == 0
    assert run(told, "check", "check", str(data)) == 0
    logs = b"".join(content for where, content in told.texts if where == "the log")
    assert b"authentication failed" in logs
    assert b"no TLS with" in logs
    assert told.found({**stage.secrets, "the HMAC of a token": hmacs}) == set()


# In this process


def objects_of_ours() -> list[Any]:
    return [one for one in gc.get_objects() if str(type(one).__module__).startswith("odradek.")]


def test_no_object_of_a_broker_prints_a_secret(stage: Stage, tmp_path: pathlib.Path) -> None:
    told, hmacs = Told(), list[bytes]()
    with Served(tmp_path, stage.settings) as served:
        port = served.port("ADMIN")
        with Client(port, told) as client:
            assert client.log_in() == 0
            assert alter_user(client, ITERATIONS) == 0
            drive_tokens(dataclasses.replace(stage, ports={"ADMIN": port}), told, hmacs)
            ours = served.call(objects_of_ours)
            kinds = set()
            for one in ours:
                kinds.add(type(one).__name__)
                told.add(f"repr of {type(one).__name__}", repr(one))
    assert {"BrokerConfig", "ListenerSecurity", "Connection", "LoginModule", "Secret"} <= kinds
    assert {"DelegationToken", "TokenSecret", "TokenLogins", "SignedValidator"} <= kinds
    assert told.found({**stage.secrets, "the HMAC of a token": hmacs}) == set()


def test_requests_and_records_with_secrets_do_not_print_them() -> None:
    """Also where a fault would print them."""
    from odradek.wire import messages
    from odradek.wire.messages import metadata_records

    names = {"auth_bytes", "salted_password", "hmac", "stored_key", "server_key"}
    found = set()
    for struct in _structs(messages, metadata_records):
        for one in dataclasses.fields(struct):
            if one.name in names:
                found.add(one.name)
                assert not one.repr, f"{struct.__name__}.{one.name}"
    assert found == names
    for config in (AlterableConfig, LegacyConfig, metadata_records.ConfigRecord):
        assert MARK not in repr(_with_value(config))


def _structs(*modules: Any) -> Iterator[type]:
    import importlib
    import pkgutil

    from odradek.wire.schema import Struct

    for module in modules:
        if hasattr(module, "__path__"):
            for one in pkgutil.iter_modules(module.__path__):
                importlib.import_module(f"{module.__name__}.{one.name}")
    waiting: list[type] = [Struct]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if dataclasses.is_dataclass(one):
            yield one


def _with_value(config: type) -> Any:
    more: dict[str, Any] = {}
    if config is AlterableConfig:
        more = {"config_operation": SET}
    elif config is not LegacyConfig:
        more = {"resource_type": BROKER, "resource_name": "1"}
    return config(name="ssl.key.password", value=MARK, **more)


def fails(*_: object, **__: object) -> Any:
    raise RuntimeError("a fault of the test")


def test_a_traceback_shows_no_secret(
    stage: Stage,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, hmacs = Told(), list[bytes]()
    with caplog.at_level(logging.DEBUG), Served(tmp_path, stage.settings) as served:
        port = served.port("ADMIN")
        with Client(port, told) as client:
            assert client.log_in() == 0
            monkeypatch.setattr(scram_users, "credential_of", fails)
            client.send_request(
                AlterUserScramCredentialsRequest(
                    deletions=[],
                    upsertions=[
                        ScramCredentialUpsertion(
                            name="altered",
                            mechanism=SCRAM_SHA_256,
                            iterations=ITERATIONS,
                            salt=SALT,
                            salted_password=SALTED,
                        )
                    ],
                ),
                0,
            )
            with contextlib.suppress(EOFError):
                client.receive_frame()
            monkeypatch.setattr(plain.PlainServer, "_is_right", fails)
        with Client(port, told) as client:
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send_request(SaslAuthenticateRequest(auth_bytes=f"\0admin\0{ADMIN}".encode()), 2)
            told.add("what comes before the end", client.read_to_end())
        monkeypatch.undo()
        here = dataclasses.replace(stage, ports={"ADMIN": port})
        drive_tokens(here, told, hmacs)
        for owner, name in ((SignedValidator, "validate"), (TokenLogins, "find"), (TokenRules, "renew")):
            faults = caplog.text.count("a fault of the test")
            with monkeypatch.context() as broken:
                broken.setattr(owner, name, fails)
                with pytest.raises(EOFError):
                    drive_tokens(here, told, hmacs)
            assert caplog.text.count("a fault of the test") > faults, "there is a traceback"
        with Client(port, told) as client:
            assert client.log_in() == 0, "the others are served"
    assert caplog.text.count("a fault of the test") >= 2
    told.add("the log", caplog.text)
    assert told.found({**stage.secrets, "the HMAC of a token": hmacs}) == set()
