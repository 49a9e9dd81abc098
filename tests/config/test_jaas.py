import traceback

import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.jaas import LOGIN_MODULES, parse_file, parse_one, server_context
from odradek.config.logins import Logins
from tests.kit.collecting import collected

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "pw-of-ann"


def options(text):
    return dict(parse_one(text, "the text").options)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{PLAIN} required;", {}),
        (f"{PLAIN} REQUIRED ;", {}),
        (f"{PLAIN} Requisite a=b c = d;", {"a": "b", "c": "d"}),
        (f"{PLAIN} sufficient user_ann=\"x y\" user_bob='z';", {"user_ann": "x y", "user_bob": "z"}),
        (f"{PLAIN} optional a=\"1\" b='';", {"a": "1", "b": ""}),
        (f'{PLAIN} required a="\\"\\\\\\n\\t\\101\\7x";', {"a": '"\\\n\tA\x07x'}),
        (f'{PLAIN} required a="\\4011\\q";', {"a": "\x201" + "1q"}),
        (f"{PLAIN} required // the rest is a comment ;\n a=b;", {"a": "b"}),
        (f"{PLAIN} /* over\n lines ; */ required a=b;", {"a": "b"}),
        (f"{PLAIN} required a=b/ this too ;\n;", {"a": "b"}),
        (f"{PLAIN} required a-b_c$d.e=f;", {"a-b_c$d.e": "f"}),
        (f"'{PLAIN}' required a=b;", {"a": "b"}),
        (f"{PLAIN}\n\trequired\r\n a=b;\n", {"a": "b"}),
        (f"{PLAIN} required a=b a=c;", {"a": "c"}),
        (f"{PLAIN} required a=\xe9t\xe9;", {"a": "\xe9t\xe9"}),
    ],
)
def test_an_entry_is_read_as_java_reads_it(text, found):
    assert options(text) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the class of a login module is missing"),
        (f"{PLAIN}", "a control flag is missing"),
        (f"{PLAIN} ;", "a control flag is missing"),
        (f"{PLAIN} always;", "no control flag"),
        (f"{PLAIN} required", "a key or ';' is missing"),
        (f"{PLAIN} required a", "'=' is missing"),
        (f"{PLAIN} required a=;", "the value of a key"),
        (f"{PLAIN} required a=1;", "in quotes if it is a number"),
        (f"{PLAIN} required a=-5;", "in quotes if it is a number"),
        (f"{PLAIN} required a=b; {PLAIN} required;", "more than one login module"),
        (f"{PLAIN} required a='b;", "without its closing quote"),
        (f"{PLAIN} required a='b\n';", "without its closing quote"),
        (f"{PLAIN} required {{}};", "a key or ';' is missing"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule'"),
        ("com.sun.security.auth.module.LdapLoginModule required;", "LdapLoginModule'"),
        ("PlainLoginModule required;", "'PlainLoginModule'"),
    ],
)
def test_what_is_no_entry_is_refused_with_the_line(text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        parse_one(text, "the text")
    assert str(caught.value).startswith("the text ")
    assert "(line " in str(caught.value)


def test_no_error_shows_a_password():
    text = f"{PLAIN} required user_ann='{PASSWORD}' x=y;"
    with collected() as failures:
        for at in range(len(text)):
            for broken in (text[:at], text[:at] + "=" + text[at:], text[:at] + ";" + text[at:]):
                with failures.of(broken):
                    assert PASSWORD not in told_about(broken)


def told_about(text):
    try:
        return repr(parse_one(text, "the text"))
    except ConfigError as error:
        return str(error)


def test_a_file_has_contexts():
    contexts = parse_file(
        f"KafkaServer {{\n {PLAIN} required user_a='1';\n {SCRAM} required username=b;\n}};\n"
        f"inside.KafkaServer {{ {PLAIN} required user_c='3'; }};",
        "the file",
    )
    assert {name: len(found) for name, found in contexts.items()} == {
        "KafkaServer": 2,
        "inside.KafkaServer": 1,
    }
    assert server_context(contexts, "OUTSIDE", "PLAIN").options == {"user_a": "1"}
    assert server_context(contexts, "OUTSIDE", "SCRAM-SHA-512").name == SCRAM
    assert server_context(contexts, "INSIDE", "PLAIN").options == {"user_c": "3"}
    # As in Kafka: a context of the listener stands alone.
    assert server_context(contexts, "INSIDE", "SCRAM-SHA-512") is None
    assert server_context({}, "INSIDE", "PLAIN") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"KafkaServer {PLAIN} required;", "'{' is missing"),
        (f"KafkaServer {{ {PLAIN} required; }}", "';' is missing"),
        (f"KafkaServer {{ {PLAIN} required; }}; KafkaServer {{ }};", "twice"),
        ("KafkaServer { com.example.MyLoginModule required; };", r"'com\.example\.MyLoginModule'"),
        ("KafkaServer { com.example.Mine required; };", "something else than a login module"),
    ],
)
def test_what_is_no_file_of_contexts_is_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_file(text, "the file")


def test_every_known_login_module_is_for_mechanisms_of_kafka_or_zookeeper():
    assert {mechanism for found in LOGIN_MODULES.values() for mechanism in found} == {
        *("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "DIGEST-MD5")
    }


SASL = ["listeners=SASL_PLAINTEXT://localhost:0", "sasl.enabled.mechanisms=PLAIN"]
OF_LISTENER = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def test_a_broker_reads_the_users_of_a_listener_from_its_setting_then_from_the_file(tmp_path):
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaServer {{ {PLAIN} required user_of_file='1'; }};")
    path.chmod(0o640)
    of_file = [*SASL, f"odradek.jaas.config.path={path}"]
    config = load(sets=of_file)
    assert config.logins["SASL_PLAINTEXT"].modules["PLAIN"].options == {"user_of_file": "1"}
    assert any("other users of this machine" in warning for warning in config.warnings)
    assert any("PLAIN without TLS" in warning for warning in config.warnings)
    path.chmod(0o600)
    config = load(sets=[*of_file, f"{OF_LISTENER}={PLAIN} required user_of_setting='2';"])
    assert config.logins["SASL_PLAINTEXT"].modules["PLAIN"].options == {"user_of_setting": "2"}
    assert not any("other users of this machine" in warning for warning in config.warnings)


def test_a_file_that_others_may_read_is_named_once_and_whoever_uses_it(tmp_path):
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaServer {{ {PLAIN} required user_a='1' username=me password=word; }};")
    path.chmod(0o640)
    of_file = f"odradek.jaas.config.path={path}"
    several = [
        "listeners=A://localhost:0,B://localhost:0",
        "listener.security.protocol.map=A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        *("inter.broker.listener.name=A", SASL[1]),
    ]
    to_controllers = [
        *IN_CLUSTER,
        PROTOCOLS.format("SASL_PLAINTEXT", "PLAINTEXT"),
        "sasl.mechanism.controller.protocol=PLAIN",
    ]
    for sets in (several, to_controllers):
        warnings = load(sets=[*sets, of_file]).warnings
        assert len([one for one in warnings if "other users of this machine" in one]) == 1


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([], "has no users"),
        ([f"{OF_LISTENER}={PLAIN} required;"], "has no users"),
        ([f"{OF_LISTENER}={SCRAM} required user_a='b';"], "PLAIN needs .*PlainLoginModule"),
        ([f"{OF_LISTENER}=com.example.MyLoginModule required;"], r"com\.example\.MyLoginModule"),
        (["odradek.jaas.config.path=/no/such/file"], "cannot be read"),
    ],
)
def test_a_listener_with_plain_needs_users(sets, words):
    with pytest.raises(ConfigError, match=words):
        load(sets=[*SASL, *sets])


def test_scram_needs_no_login_module():
    config = load(sets=[SASL[0], "sasl.enabled.mechanisms=SCRAM-SHA-256"])
    assert config.logins == {"SASL_PLAINTEXT": Logins({})}


IN_CLUSTER = [
    *("process.roles=broker", "node.id=7", "controller.quorum.bootstrap.servers=127.0.0.1:1"),
    *("controller.listener.names=CTL", "inter.broker.listener.name=IN", "listeners=IN://127.0.0.1:2"),
]
PROTOCOLS = "listener.security.protocol.map=CTL:{},IN:{}"
MINE = "required username=me password='pw-of-me';"


def test_a_node_of_a_cluster_logs_in_to_brokers_and_controllers():
    config = load(
        sets=[
            *IN_CLUSTER,
            PROTOCOLS.format("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
            "listener.name.in.sasl.enabled.mechanisms=SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol=PLAIN",
            f"listener.name.in.scram-sha-512.sasl.jaas.config={SCRAM} {MINE}",
            f"listener.name.ctl.plain.sasl.jaas.config={PLAIN} required username=other password='word';",
        ]
    )
    brokers, controllers = config.inter_broker_login, config.controller_login
    assert (brokers.mechanism, brokers.user, brokers.password.reveal()) == ("SCRAM-SHA-512", "me", "pw-of-me")
    assert (controllers.mechanism, controllers.user) == ("PLAIN", "other")
    assert "pw-of-me" not in f"{brokers} {config.layers}"
    assert config.without_effect == ()
    assert [one.protocol for one in config.cluster.advertised] == ["SASL_PLAINTEXT"]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["sasl.enabled.mechanisms=SCRAM-SHA-256"], "is not among the mechanisms of listener IN"),
        (
            ["sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"],
            "has no username and password",
        ),
    ],
)
def test_a_node_that_could_not_reach_its_brokers_does_not_start(sets, words):
    with pytest.raises(ConfigError, match=words):
        load(sets=[*IN_CLUSTER, PROTOCOLS.format("PLAINTEXT", "SASL_PLAINTEXT"), *sets])


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_controllers_with_sasl_need_a_login(protocol):
    with pytest.raises(ConfigError, match=r"sasl\.mechanism\.controller\.protocol=GSSAPI is not built"):
        load(sets=[*IN_CLUSTER, PROTOCOLS.format(protocol, "PLAINTEXT")])


def test_the_first_users_come_from_the_environment():
    name = "ODRADEK_ADD_SCRAM"
    text = 'SCRAM-SHA-256=[name=ann,password="a b,]"]; SCRAM-SHA-512=[name=bob,iterations=8192,password=x]'
    ann, bob = load(environ={name: text}).first_users
    assert (ann.name, ann.mechanism, ann.password.reveal(), ann.iterations) == (
        "ann",
        "SCRAM-SHA-256",
        "a b,]",
        4096,
    )
    assert (bob.name, bob.mechanism, bob.password.reveal(), bob.iterations) == (
        "bob",
        "SCRAM-SHA-512",
        "x",
        8192,
    )
    assert "a b" not in repr(ann)
    assert load(environ={}).first_users == ()
    for wrong in (
        *("SCRAM-SHA-1=[name=a,password=topsecret]", "SCRAM-SHA-256=[name=a,password=topsecret", "topsecret"),
        *("SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[name=,password=topsecret]"),
        "SCRAM-SHA-256=[name=a,password=topsecret,iterations=1]",
        "SCRAM-SHA-256=[name=a,password=topsecret,salt=x]",
    ):
        with pytest.raises(ConfigError, match=name) as caught:
            load(environ={name: wrong})
        assert "topsecret" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_the_variable_of_first_users_is_none_of_a_cluster():
    environ = {"ODRADEK_ADD_SCRAM": "SCRAM-SHA-256=[name=a,password=b]"}
    with pytest.raises(ConfigError, match="kafka-storage"):
        load(sets=[*IN_CLUSTER, PROTOCOLS.format("PLAINTEXT", "PLAINTEXT")], environ=environ)


@pytest.mark.parametrize(
    "text",
    [
        *("a-password required;", "a.pass-word;", "'two words of pass' required;", "pass;"),
        *("my.pass required;", "pass.LoginModule2 required;", "'pass word.LoginModule' required;"),
        *(f'{PLAIN} required user_a="x"pass=2;', f'{PLAIN} required user_a="x" pass=;'),
    ],
)
def test_what_may_be_a_password_is_not_shown(text):
    with pytest.raises(ConfigError, match=r"\(line 1\)") as error:
        parse_one(text, "sasl.jaas.config")
    assert "pass" not in str(error.value)
    with pytest.raises(ConfigError, match=r"\(line 1\)") as error:
        parse_file(f"KafkaServer {{ {text} }};", "the file")
    assert "pass" not in str(error.value)


def test_the_name_of_a_context_is_not_shown():
    with pytest.raises(ConfigError, match="a context twice") as error:
        parse_file("pass { }; pass { };", "the file")
    assert "pass" not in str(error.value)
