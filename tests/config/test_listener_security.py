import json
import logging
import traceback

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.config.listener_security import check_names, resolve, settings_without_use
from odradek.config.options import BROKER_OPTIONS, REFUSED, BrokerLayers, describe_broker, hidden
from odradek.config.secret import Secret

PASSWORD = "pw-of-ann"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='pw-of-ann';"


def resolved(settings, *, name="INSIDE", protocol="SASL_PLAINTEXT", **layers):
    settings = {"sasl.enabled.mechanisms": "PLAIN", **settings}
    return resolve(name, protocol, BrokerLayers(start=settings, **layers))


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, 0),
        ({"connections.max.reauth.ms": "1"}, 1),
        ({"listener.name.inside.connections.max.reauth.ms": "2", "connections.max.reauth.ms": "1"}, 2),
        (
            {
                "listener.name.inside.plain.connections.max.reauth.ms": "3",
                "listener.name.inside.connections.max.reauth.ms": "2",
            },
            3,
        ),
        ({"listener.name.outside.connections.max.reauth.ms": "4", "connections.max.reauth.ms": "1"}, 1),
        ({"listener.name.inside.scram-sha-256.connections.max.reauth.ms": "5"}, 0),
    ],
)
def test_the_narrowest_setting_of_a_mechanism_counts(settings, seen):
    assert resolved(settings).value("connections.max.reauth.ms", "PLAIN") == seen


def test_a_setting_of_the_run_time_comes_before_one_of_the_start_but_not_before_a_narrower_one():
    name = "ssl.keystore.location"
    security = resolved({f"listener.name.inside.{name}": "a"}, broker={name: "b"}, protocol="SSL")
    assert security.values[name] == "a"
    security = resolved(
        {f"listener.name.inside.{name}": "a"}, broker={f"listener.name.inside.{name}": "c"}, protocol="SSL"
    )
    assert security.values[name] == "c"


def test_the_jaas_settings_of_a_server_need_both_prefixes():
    name = "sasl.jaas.config"
    security = resolved({name: "base", f"listener.name.inside.{name}": "listener"})
    assert security.value(name, "PLAIN") is None
    security = resolved({f"listener.name.inside.plain.{name}": JAAS})
    assert security.value(name, "PLAIN").reveal() == JAAS
    assert security.value(name, "SCRAM-SHA-256") is None


def test_client_certificates_of_sasl_over_tls_need_the_prefix_of_the_listener():
    name = "ssl.client.auth"
    over_tls = {"name": "INSIDE", "protocol": "SASL_SSL"}
    assert resolved({name: "required"}, **over_tls).values[name] == "none"
    assert resolved({f"listener.name.inside.{name}": "required"}, **over_tls).values[name] == "required"
    assert resolved({name: "required"}, protocol="SSL").values[name] == "required"


def test_defaults_are_seen_and_options_without_a_value_are_not():
    values = resolved({}).values
    assert values["sasl.server.max.receive.size"] == "524288"
    assert "ssl.keystore.location" not in values


def test_mechanisms_keep_their_order_and_belong_to_sasl():
    mechanisms = "SCRAM-SHA-512,PLAIN"
    assert resolved({"sasl.enabled.mechanisms": mechanisms}).mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert resolved({"listener.name.inside.sasl.enabled.mechanisms": mechanisms}).mechanisms == (
        "SCRAM-SHA-512",
        "PLAIN",
    )
    assert resolved({}, protocol="SSL").mechanisms == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.enabled.mechanisms": ""}, "no mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-1"}, "has SCRAM-SHA-1"),
        ({"sasl.enabled.mechanisms": "plain"}, "has plain"),
        ({"sasl.server.callback.handler.class": "org.example.Ldap"}, "is a Java class"),
        (
            {"listener.name.inside.plain.sasl.server.callback.handler.class": "org.example.L"},
            "is a Java class",
        ),
    ],
)
def test_a_listener_that_could_not_authenticate_is_refused(settings, words):
    with pytest.raises(ConfigError, match="INSIDE"):
        resolved(settings)
    with pytest.raises(ConfigError, match=words):
        resolved(settings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "listener.name.inside.ssl.keystore.locatoin",
            "Did you mean listener.name.inside.ssl.keystore.location",
        ),
        ("listener.name.inside.no.such", "There is no option"),
        ("listener.name.inside", "There is no option"),
        ("listener.name.insdie.ssl.client.auth", "for a listener 'insdie'"),
        ("listener.name.INSIDE.ssl.client.auth", "for a listener 'INSIDE'"),
        ("listener.name.inside.scram-sha256.sasl.jaas.config", "a mechanism 'scram-sha256'"),
        ("listener.name.inside.PLAIN.sasl.jaas.config", "a mechanism 'PLAIN'.*in lower case"),
        ("listener.name.inside.Plain.connections.max.reauth.ms", "a mechanism 'Plain'"),
        ("listener.name.inside.plain.ssl.client.auth", "There is no option"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name, words):
    with pytest.raises(ConfigError, match=words):
        check_names([name], ["INSIDE", "CONTROLLER"])


def test_names_of_listeners_and_of_controllers_are_taken():
    check_names(
        [
            "listener.name.controller.sasl.enabled.mechanisms",
            "listener.name.inside.plain.sasl.jaas.config",
            "x",
        ],
        ["INSIDE", "CONTROLLER"],
    )


def test_settings_that_no_listener_uses_are_named():
    of_sasl = ("sasl.enabled.mechanisms", "connections.max.reauth.ms")
    of_tls = ("ssl.keystore.location", "listener.name.b.ssl.keystore.type")
    given = (*of_sasl, *of_tls, "listener.name.a.plain.sasl.jaas.config", "num.partitions")
    assert settings_without_use(given, {"A": "PLAINTEXT", "B": "PLAINTEXT"}) == given[:-1]
    assert settings_without_use(given, {"A": "SASL_PLAINTEXT", "B": "PLAINTEXT"}) == of_tls
    assert settings_without_use(given, {"A": "SASL_PLAINTEXT", "B": "SSL"}) == ()
    # In Kafka, too, these need both prefixes.
    jaas = ("sasl.jaas.config", "listener.name.a.sasl.jaas.config")
    assert settings_without_use(jaas, {"A": "SASL_PLAINTEXT"}) == jaas


def test_a_setting_without_use_is_named_at_the_start():
    name = "listener.name.plaintext.scram-sha-512.sasl.jaas.config"
    assert load(sets=[f"{name}={JAAS}"]).without_effect == (name,)


def test_a_password_is_never_printed():
    secret = Secret(PASSWORD)
    printed = (f"{secret}", str(secret), repr(secret), f"{secret} {secret!r}", f"{secret:>20}")
    assert PASSWORD not in "".join(printed)
    record = logging.makeLogRecord({"msg": "%s %r", "args": (secret, secret)})
    assert record.getMessage() == "[hidden] [hidden]"
    assert secret.reveal() == PASSWORD
    assert type(secret.reveal()) is str
    assert Secret(secret).reveal() == PASSWORD
    assert json.loads(json.dumps(secret)) == PASSWORD


PASSWORDS = [one.name for one in BROKER_OPTIONS.values() if one.is_sensitive]


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_password_in_the_options_is_hidden_wherever_they_are_printed(name):
    names = (name, f"listener.name.plaintext.{name}", "of.a.plugin")
    texts = {f"KAFKA_{one.upper().replace('.', '_')}": PASSWORD for one in names}
    assert all(PASSWORD not in repr(hidden(one, PASSWORD, BROKER_OPTIONS)) for one in names)
    if BROKER_OPTIONS[name].standing == REFUSED:
        with pytest.raises(ConfigError) as caught:
            load(environ=texts)
        assert PASSWORD not in "".join(traceback.format_exception(caught.value))
        return
    config = load(environ=texts)
    assert PASSWORD not in f"{config.layers!r} {config.values!r} {config.warnings} {vars(config)!r}"
    entries = [entry for entry in describe_broker(config.layers) if entry.name in names]
    assert len(entries) == len(names)
    for entry in entries:
        assert (entry.value, entry.sensitive) == (None, True)
        assert PASSWORD not in repr(entry)


def test_what_a_listener_sees_prints_no_password():
    security = resolved(
        {"listener.name.inside.plain.sasl.jaas.config": JAAS, "ssl.keystore.password": PASSWORD},
        protocol="SASL_SSL",
    )
    assert PASSWORD not in f"{security!r} {security.values} {security.of_mechanisms}"


def test_a_secret_of_a_secret_is_the_same_secret():
    secret = Secret("pw")
    assert Secret(secret) == secret
    assert Secret(secret).reveal() == "pw"
