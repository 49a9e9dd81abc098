"""Options of clients: which are honoured, which are refused by name, and that no text shows a secret."""

from __future__ import annotations

import pathlib
import pickle
import ssl

import pytest
import trustme

from odradek.config.config_error import ConfigError
from odradek.security.client_security import ClientSecurity, is_security_option, read_command_config

FILES = pathlib.Path(__file__).with_name("key_store_files")
SECURITY = "org.apache.kafka.common.security"
SECRET = "nobody-may-see-this"
SCRAM = f'{SECURITY}.scram.ScramLoginModule required username="ann" password="{SECRET}";'
PLAIN = f'{SECURITY}.plain.PlainLoginModule required username="ann" password="{SECRET}";'
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
URL = "sasl.oauthbearer.token.endpoint.url"


def sasl(mechanism: str = "SCRAM-SHA-256", jaas: str = SCRAM, **more: str) -> dict[str, str]:
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return own | {name.replace("__", "."): value for name, value in more.items()}


def refused(values: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        ClientSecurity.of(values, "kafka.")
    assert SECRET not in repr(caught.value)
    return str(caught.value)


def test_without_options_there_is_neither_tls_nor_sasl() -> None:
    security = ClientSecurity.of({})
    assert (security.protocol, security.context(), security.login("nonce")) == ("PLAINTEXT", None, None)


def test_credentials_come_from_the_login_module_as_in_kafka() -> None:
    token = SCRAM.replace(";", ' tokenauth=true serviceName="kafka";')
    for values, user, is_token in (
        (sasl(), "ann", False),
        (sasl("SCRAM-SHA-512"), "ann", False),
        (sasl("plain", PLAIN, security__protocol="sasl_plaintext"), "ann", False),
        (sasl(jaas=token), "ann", True),
        (sasl(jaas=token.replace("tokenauth=true", 'tokenauth="true"')), "ann", True),
        (sasl(jaas=token.replace("tokenauth=true", 'tokenauth="false"')), "ann", False),
    ):
        known = ClientSecurity.of(values).credentials
        assert known is not None
        assert (known.user, known.password.reveal(), known.is_token) == (user, SECRET, is_token)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol"),
        ({"ssl.truststore.location": "x"}, "kafka.ssl.truststore.location has no effect with"),
        ({"ssl.key.password": SECRET}, "kafka.ssl.key.password has no effect with"),
        ({"sasl.jaas.config": SCRAM}, "kafka.sasl.jaas.config has no effect with"),
        ({"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism has no effect with"),
        ({"security.protocol": "SSL", "ssl.provider": "x"}, "kafka.ssl.provider is not taken"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x"}, "kafka.ssl.engine.factory.class"),
        ({"security.protocol": "SSL", "ssl.no.such": SECRET}, "kafka.ssl.no.such is not taken"),
        ({"security.protocol": "SSL", "ssl.protocol": "SSLv3"}, "kafka.ssl.protocol is 'SSLv3'"),
        ({"security.protocol": "SSL", "security.providers": "x"}, "kafka.security.providers is not taken"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is 'GSSAPI', the default"),
        (sasl("GSSAPI"), "kafka.sasl.mechanism is 'GSSAPI': it has to be"),
        (sasl(jaas=""), "kafka.sasl.jaas.config is missing"),
        (sasl(jaas=f'{SCRAM} {SCRAM}'), "kafka.sasl.jaas.config has more than one login module"),
        (sasl("PLAIN"), "kafka.sasl.jaas.config has"),
        (sasl(jaas=SCRAM.replace("username", "user")), "SCRAM-SHA-256 takes password, "),
        (sasl(jaas=f'{SECURITY}.scram.ScramLoginModule required username="ann";'), "no password"),
        (sasl(jaas='com.evil.Module required password="nobody-may-see-this";'), "something else than"),
        (sasl(jaas='com.evil.LoginModule required password="nobody-may-see-this";'), "com.evil.LoginModule"),
        (sasl(sasl__login__class="x"), "kafka.sasl.login.class is not taken"),
        (sasl(sasl__kerberos__service__name="x"), "kafka.sasl.kerberos.service.name is not taken: GSSAPI"),
        (sasl(**{URL: "file:/x"}), f"kafka.{URL} is not taken: SCRAM-SHA-256 has no use"),
        (sasl("OAUTHBEARER", OAUTH), f"kafka.{URL} has to be file:"),
        (sasl("OAUTHBEARER", OAUTH, **{URL: "https://issuer/token"}), f"kafka.{URL} has to be file:"),
        (
            sasl("OAUTHBEARER", OAUTH, **{URL: "file:/x", "sasl.oauthbearer.scope": "x"}),
            "kafka.sasl.oauthbearer.scope is not taken: tokens come from the file",
        ),
        (
            sasl("OAUTHBEARER", OAUTH.replace(";", ' unsecuredLoginStringClaim_sub="ann";')),
            "has an option that is not taken",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_its_name(values: dict[str, str], name: str) -> None:
    assert name in refused(values)


def test_every_option_of_security_is_asked_of_this_class() -> None:
    assert all(map(is_security_option, ("security.protocol", "ssl.anything", "sasl.anything")))
    assert not any(map(is_security_option, ("bootstrap.servers", "client.id", "secret")))


def test_key_stores_are_read_when_a_context_is_made_and_named_when_they_cannot_be(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "trust.pem"
    security = ClientSecurity.of(
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)},
        "kafka.",
    )
    with pytest.raises(ConfigError, match=r"kafka\.\*: ssl\.truststore\.location=.*cannot be read"):
        security.context()
    authority = trustme.CA()
    path.write_bytes(authority.cert_pem.bytes())
    context = security.context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(("kind", "trust", "own"), [("JKS", "t.jks", "a.jks"), ("PKCS12", "t.p12", "a.p12")])
def test_stores_of_java_are_read_as_those_of_a_listener(kind: str, trust: str, own: str) -> None:
    values = {
        "security.protocol": "SSL",
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(FILES / trust),
        "ssl.truststore.password": "secret3",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(FILES / own),
        "ssl.keystore.password": "secret1",
        "ssl.key.password": "secret2" if kind == "JKS" else "secret1",
    }
    context = ClientSecurity.of(values, "kafka.").context()
    assert context is not None
    assert context.cert_store_stats()["x509"] == 1
    wrong = ClientSecurity.of(values | {"ssl.truststore.password": "wrong-secret"}, "kafka.")
    with pytest.raises(ConfigError, match="its password is wrong") as caught:
        wrong.context()
    assert "wrong-secret" not in str(caught.value)


def test_the_name_of_the_host_is_not_checked_where_the_option_is_empty() -> None:
    values = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    context = ClientSecurity.of(values).context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_token_is_read_anew_for_each_connection(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a token"
    url = f"file://{tmp_path}/a%20token"
    security = ClientSecurity.of(sasl("OAUTHBEARER", OAUTH, **{URL: url}))
    for content, complaint in (("", "has no token"), ("a b", "has no token"), ("é", "cannot be read")):
        path.write_text(content)
        with pytest.raises(ConfigError, match=complaint):
            security.login("nonce")
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        security.login("nonce")
    path.write_text(f"{SECRET}\n")
    login = security.login("nonce")
    assert login is not None
    assert SECRET not in repr(vars(login))


def test_no_repr_has_a_secret_and_a_pickled_copy_is_the_same() -> None:
    values = sasl(ssl__key__password=SECRET, ssl__truststore__password=SECRET, ssl__keystore__key=SECRET)
    security = ClientSecurity.of(values)
    copy = pickle.loads(pickle.dumps(security))
    assert copy == security
    assert copy.credentials.password.reveal() == SECRET
    assert SECRET not in repr(security) + repr(copy)
    assert SECRET not in f"{security} {copy}"


def test_a_file_of_kafkas_tools_is_read_as_they_read_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"# mine\nsecurity.protocol = SASL_SSL\nsasl.mechanism:PLAIN\nsasl.jaas.config={PLAIN}\n")
    values = read_command_config(str(path))
    assert values == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN,
    }
    assert ClientSecurity.of(values).credentials is not None
    with pytest.raises(ConfigError, match=r"--command-config .*nowhere cannot be read: No such file"):
        read_command_config(str(tmp_path / "nowhere"))
    path.write_text("a=\\u12")
    with pytest.raises(ConfigError, match="is not a file of properties"):
        read_command_config(str(path))
