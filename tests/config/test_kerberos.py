"""The service of a listener with GSSAPI, and the rules for its clients, which are compared with Kafka's own
class in `compat_tests/security/test_principals.py`."""

import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.kerberos_names import KerberosName, NoLocalName, ShortNames

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
REALM = "HOME.EXAMPLE"


def name_of(principal: str, *rules: str) -> str:
    return ShortNames(rules, REALM).name_of(principal)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ann@R", ("ann", None, "R")),
        ("kafka/host@R", ("kafka", "host", "R")),
        ("kafka/@", ("kafka", "", "")),
        ("a/b", ("a/b", None, None)),
    ],
)
def test_a_principal_has_up_to_three_parts(text: str, parts: tuple[str | None, ...]) -> None:
    assert KerberosName.parse(text) == parts


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@c", "a@b/c"])
def test_a_principal_with_more_parts_has_no_name(text: str) -> None:
    with pytest.raises(NoLocalName):
        name_of(text, "DEFAULT")


@pytest.mark.parametrize(
    ("principal", "rules", "user"),
    [
        ("ann@HOME.EXAMPLE", ["DEFAULT"], "ann"),
        ("kafka/host@HOME.EXAMPLE", ["DEFAULT"], "kafka"),
        ("ann@X", ["DEFAULT", "RULE:[1:$1-$0]"], "ann-X"),
        ("ann@X", ["RULE:[2:$1]", "RULE:[1:$1]/U"], "ANN"),
        ("Ann@X", ["RULE:[1:$1]L"], "ann"),
        ("app-7@X", ["RULE:[1:$1@$0](app-.*@X)s/@.*//"], "app-7"),
        ("a.b.c@X", [r"RULE:[1:$1]s/\./_/"], "a_b.c"),
        ("a.b.c@X", [r"RULE:[1:$1]s/\./_/g"], "a_b_c"),
        ("hive/h1@X", ["RULE:[2:$1;$2](^hive;.*$)s/^(.*);(.*)$/$2.$1/"], "h1.hive"),
        ("free", [], "free"),
    ],
)
def test_the_first_rule_that_takes_a_principal_makes_the_user(
    principal: str, rules: list[str], user: str
) -> None:
    assert name_of(principal, *rules) == user


@pytest.mark.parametrize(
    ("principal", "rules"),
    [
        ("ann@X", ["DEFAULT"]),
        ("ann@HOME.EXAMPLE", []),
        ("ann@X", ["RULE:[1:$1](an)"]),
        ("ann@X", ["RULE:[1:$1@$0]", "RULE:[1:$1]"]),
        ("a/b@X", ["RULE:[2:$1/$2]"]),
        ("a/b@X", ["RULE:[1:$1]"]),
    ],
)
def test_a_principal_that_no_rule_takes_has_no_user(principal: str, rules: list[str]) -> None:
    with pytest.raises(NoLocalName):
        name_of(principal, *rules)


@pytest.mark.parametrize(
    "rule",
    [
        *("", "default", "DEFAULT ", "RULE:", "RULE:[:$1]", "RULE:[1:$1", "RULE:[1:$2]", "RULE:[1:$]"),
        *("RULE:[1:$1](", "RULE:[1:$1](*)", "RULE:[1:$1]s/a/b", "RULE:[1:$1]s/(/b/", "RULE:[1:$1]s/a/$1/"),
        *("RULE:[1:$1]LU", "RULE:[1:$1]//L", "RULE:[1:$1]s/a/b/x"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_text(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.kerberos\.principal\.to\.local\.rules has "):
        ShortNames([rule], REALM)


def loaded(login: str | None, **more: str):
    prefix = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
    sets = ["listeners=SASL_PLAINTEXT://localhost:0", "security.inter.broker.protocol=SASL_PLAINTEXT"]
    sets += [] if login is None else [f"{prefix}={MODULE} required {login};"]
    return load(sets=sets + [f"{key.replace('_', '.')}={value}" for key, value in more.items()])


RIGHT = 'useKeyTab=true storeKey=true keyTab="/etc/k.keytab" principal="kafka/host@R"'


@pytest.mark.parametrize(
    ("login", "more"),
    [
        (RIGHT, {"sasl_kerberos_service_name": "kafka"}),
        (f"{RIGHT} serviceName=kafka", {}),
        (
            f"{RIGHT} serviceName=kafka useTicketCache=true debug=true",
            {"sasl_kerberos_service_name": "kafka"},
        ),
        (f"{RIGHT} serviceName=kafka", {"sasl_kerberos_kinit_cmd": "/no/kinit"}),
    ],
)
def test_the_service_comes_from_the_login_module_and_the_options(login: str, more: dict[str, str]) -> None:
    config = loaded(login, **more)
    security = config.security["SASL_PLAINTEXT"]
    assert security.mechanisms == ("GSSAPI",)
    service = config.logins["SASL_PLAINTEXT"].service
    assert (service.principal, service.key_table, service.rules) == (
        "kafka/host@R",
        "/etc/k.keytab",
        ("DEFAULT",),
    )


@pytest.mark.parametrize(
    ("login", "more", "words"),
    [
        (None, {}, "has no Krb5LoginModule"),
        ("useKeyTab=true principal='kafka/host@R'", {}, "no name of its service"),
        (f"{RIGHT} serviceName=kafka", {"sasl_kerberos_service_name": "other"}, "remove one of them"),
        ("principal='kafka/host@R' serviceName=kafka", {}, "needs a keytab"),
        ("useKeyTab=true serviceName=kafka", {}, "needs the principal"),
        ("useKeyTab=true serviceName=kafka principal=kafka", {}, "which has 'kafka'"),
        ("useKeyTab=true serviceName=kafka principal='a/b/c@R'", {}, "which has 'a/b/c@R'"),
        (
            f"{RIGHT} serviceName=kafka",
            {"sasl_kerberos_principal_to_local_rules": "RULE:x"},
            "a rule is DEFAULT or",
        ),
    ],
)
def test_a_service_that_could_accept_nobody_stops_the_start(
    login: str | None, more: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        loaded(login, **more)
