"""TLS, logins and protected nodes at ZooKeeper, as a broker's options have them."""

import pathlib
import re

import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.properties import parse_properties
from odradek.config.zookeeper import is_protected, login_of, tls_options

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
CONNECT = "zookeeper.connect=localhost:1"
TLS = "zookeeper.ssl.client.enable=true"


def values(*sets):
    return load(sets=[CONNECT, *sets]).values


def jaas(tmp_path, text):
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    path.chmod(0o600)
    return f"odradek.jaas.config.path={path}"


def test_without_the_option_there_is_no_tls():
    assert tls_options(values("zookeeper.ssl.truststore.location=/x.pem")) is None


@pytest.mark.parametrize(
    ("sets", "versions"),
    [
        ([], "TLSv1.2"),
        (["zookeeper.ssl.protocol=TLSv1.3"], "TLSv1.3"),
        (["zookeeper.ssl.protocol=TLS"], ""),
        (["zookeeper.ssl.enabled.protocols=TLSv1.2,TLSv1.3"], "TLSv1.2,TLSv1.3"),
    ],
)
def test_versions_are_those_of_zookeepers_client(sets, versions):
    assert tls_options(values(TLS, *sets))["ssl.enabled.protocols"] == versions


def test_a_name_is_checked_unless_it_is_said_otherwise():
    name = "ssl.endpoint.identification.algorithm"
    assert tls_options(values(TLS))[name] == "HTTPS"
    assert tls_options(values(TLS, f"zookeeper.{name}="))[name] == ""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"location": "/a.pem"}, {"keystore.location": "/a.pem", "keystore.type": "PEM"}),
        (
            {"location": "/a.pem", "password": "p"},
            {"keystore.location": "/a.pem", "keystore.type": "PEM", "key.password": "p"},
        ),
        (
            {"location": "/a.pem", "type": "PKCS12", "password": "p"},
            {"keystore.location": "/a.pem", "keystore.type": "PKCS12", "keystore.password": "p"},
        ),
        (
            {"location": "/a.p12", "password": "p"},
            {"keystore.location": "/a.p12", "keystore.type": "JKS", "keystore.password": "p"},
        ),
    ],
)
def test_a_key_store_has_the_options_of_a_listener(given, found):
    sets = [f"zookeeper.ssl.keystore.{key}={text}" for key, text in given.items()]
    options = tls_options(values(TLS, *sets))
    assert {name: text for name, text in options.items() if "key" in name} == {
        f"ssl.{name}": text for name, text in found.items()
    }


def test_a_pem_of_trusted_certificates_has_no_password():
    sets = ["zookeeper.ssl.truststore.location=/a.pem", "zookeeper.ssl.truststore.password=p"]
    options = tls_options(values(TLS, *sets))
    assert options["ssl.truststore.type"] == "PEM"
    assert "ssl.truststore.password" not in options


def test_the_login_is_in_the_section_client(tmp_path):
    server = f'KafkaServer {{ {PLAIN} required user_a="1"; }};'
    text = f'{server}\nClient {{ {DIGEST} required username=ann password="s"; }};'
    login = login_of(values(jaas(tmp_path, text)))
    assert (login.mechanism, login.user, login.password.reveal()) == ("DIGEST-MD5", "ann", "s")
    assert login_of(values(jaas(tmp_path, f"KafkaServer {{ {PLAIN} required; }};"))) is None
    assert login_of(values()) is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"{KERBEROS} required useKeyTab=true", "has com.sun.security.auth.module.Krb5LoginModule, and here"),
        (f"{PLAIN} required username=ann password=secret", "has to have .*DigestLoginModule"),
        (f"{DIGEST} required username=ann", "needs username and password"),
        (f"{DIGEST} required password=secret", "needs username and password"),
    ],
)
def test_a_login_that_cannot_be_had_is_refused(tmp_path, entry, words):
    with pytest.raises(ConfigError, match=words) as caught:
        login_of(values(jaas(tmp_path, f"Client {{ {entry}; }};")))
    assert "secret" not in str(caught.value)


def test_only_a_broker_that_zookeeper_knows_protects_its_nodes(tmp_path):
    protecting = "zookeeper.set.acl=true"
    certificate = "zookeeper.ssl.keystore.location=/a.pem"
    assert not is_protected(values(), None)
    assert is_protected(values(protecting, TLS, certificate), None)
    login = login_of(values(jaas(tmp_path, f"Client {{ {DIGEST} required username=ann password=s; }};")))
    assert is_protected(values(protecting), login)
    assert not is_protected(values(), login)
    for sets in ([], [TLS], [certificate]):
        with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl needs a broker that ZooKeeper knows"):
            is_protected(values(protecting, *sets), None)


def test_the_settings_of_the_page_are_taken(tmp_path):
    page = pathlib.Path(__file__).parents[2].joinpath("docs/old-clients.md").read_text()
    blocks = re.findall(r"```properties\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        path = tmp_path / "server.properties"
        path.write_text(block)
        config = load(path)
        assert (config.warnings, config.without_effect) == ((), ())
        assert config.layers.start.keys() == parse_properties(block.encode()).keys()


def test_what_has_no_effect_is_named():
    sets = ["zookeeper.ssl.keystore.location=/a.pem", "zookeeper.session.timeout.ms=5000"]
    accepted = "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty"
    names = tuple(one.partition("=")[0] for one in (*sets, accepted))
    assert load(sets=[*sets, accepted]).without_effect == names, "there is no ZooKeeper"
    assert load(sets=[CONNECT, *sets, accepted]).without_effect == (names[0], names[2]), "there is no TLS"
    assert load(sets=[CONNECT, TLS, *sets, accepted]).without_effect == (names[2],)


@pytest.mark.parametrize("name", ["ssl.crl.enable", "ssl.ocsp.enable", "metadata.migration.enable"])
def test_what_is_not_built_is_refused(name):
    with pytest.raises(ConfigError, match=f"zookeeper.{name}"):
        load(sets=[CONNECT, f"zookeeper.{name}=true"])
    load(sets=[CONNECT, f"zookeeper.{name}=false"])
