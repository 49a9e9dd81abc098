import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.oauthbearer import SignedTokens, UnsignedTokens, warnings_of

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
UNSIGNED = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
PREFIX = "listener.name.sasl_plaintext.oauthbearer"
URL = "sasl.oauthbearer.jwks.endpoint.url"
ANY_AUDIENCE = "sasl.oauthbearer.allow.unverified.audience"
ANY_ISSUER = "sasl.oauthbearer.allow.unverified.issuer"
FOR_ANY = {ANY_AUDIENCE: "true", ANY_ISSUER: "true"}


def settings(tmp_path, **more):
    """`more` have __ for dots."""
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **more,
    }
    config = load(sets=[f"{name}={text}" for name, text in options.items()], data_dir=tmp_path)
    security = config.security["SASL_PLAINTEXT"]
    return config.logins["SASL_PLAINTEXT"].tokens, security


def test_the_keys_of_an_authority_have_defaults_of_kafka(tmp_path):
    found, security = settings(tmp_path, **{URL: "https://authority/keys", **FOR_ANY})
    assert found == SignedTokens(
        "https://authority/keys", 3_600_000, 100, 10_000, 30, (), None, "sub", "scope"
    )
    assert [one for one in warnings_of(security, found) if "expected.audience" in one]
    assert [one for one in warnings_of(security, found) if "expected.issuer" in one]
    assert [one for one in warnings_of(security, found) if "without TLS" in one]


@pytest.mark.parametrize(
    ("waived", "missing"),
    [(ANY_ISSUER, "sasl.oauthbearer.expected.audience"), (ANY_AUDIENCE, "sasl.oauthbearer.expected.issuer")],
)
def test_a_start_without_a_word_on_whose_tokens_for_whom_is_refused(tmp_path, waived, missing):
    with pytest.raises(ConfigError, match=missing):
        settings(tmp_path, **{URL: "https://authority/keys", waived: "true"})


def test_a_value_counts_beside_the_leave_to_have_none(tmp_path):
    expected = {"sasl.oauthbearer.expected.audience": "a", "sasl.oauthbearer.expected.issuer": "us"}
    found, security = settings(tmp_path, **{URL: "https://authority/keys", **FOR_ANY, **expected})
    assert (found.audiences, found.issuer) == (("a",), "us")
    assert not [one for one in warnings_of(security, found) if "expected" in one]


def test_the_narrower_setting_takes_precedence(tmp_path):
    found, security = settings(
        tmp_path,
        **{
            URL: "https://everywhere/keys",
            f"listener.name.sasl_plaintext.{URL}": "https://listener/keys",
            f"{PREFIX}.{URL}": "https://mechanism/keys",
            f"{PREFIX}.sasl.oauthbearer.expected.audience": "a,b",
            "sasl.oauthbearer.expected.issuer": "us",
            "sasl.oauthbearer.sub.claim.name": "name",
        },
    )
    assert (found.jwks_url, found.audiences, found.issuer, found.subject_claim) == (
        "https://mechanism/keys",
        ("a", "b"),
        "us",
        "name",
    )
    assert not [one for one in warnings_of(security, found) if "expected" in one]


@pytest.mark.parametrize(
    "url", ["file:/a/b", "file:///a/b", "http://127.0.0.1:80/x", "http://[::1]/", "http://localhost/"]
)
def test_these_addresses_are_taken(tmp_path, url):
    assert settings(tmp_path, **{URL: url, **FOR_ANY})[0].jwks_url == url


@pytest.mark.parametrize(
    "url",
    ["http://authority/", "http://10.0.0.1/", "ftp://a/b", "/a/b", "file:", "https:", "file://host/a",
     "https://user:password@authority/", "http://[", "http://127.0.0.1.example/"],
)  # fmt: skip
def test_these_addresses_stop_the_start(tmp_path, url):
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url of listener") as refused:
        settings(tmp_path, **{URL: url})
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {f"{PREFIX}.sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"},
        {f"{PREFIX}.sasl.server.callback.handler.class": "com.example.Handler", URL: "https://a/b"},
        {"sasl.oauthbearer.jwt.validator.class": "com.example.Validator", URL: "https://a/b"},
        {"sasl.oauthbearer.sub.claim.name": " ", URL: "https://a/b"},
        {"sasl.oauthbearer.clock.skew.seconds": "-1", URL: "https://a/b"},
    ],
)
def test_without_a_way_to_check_tokens_there_is_no_start(tmp_path, more):
    with pytest.raises(ConfigError, match=r"(of l|L)istener SASL_PLAINTEXT"):
        settings(tmp_path, **more)


def test_unsigned_tokens_are_taken_where_kafkas_class_is_named(tmp_path):
    named = {f"{PREFIX}.sasl.server.callback.handler.class": UNSIGNED}
    found, security = settings(tmp_path, **named)
    assert found == UnsignedTokens()
    assert warnings_of(security, found) == [
        "Listener SASL_PLAINTEXT takes unsigned tokens: every client may be who it likes."
    ]
    jaas = (
        f'{PACKAGE}.OAuthBearerLoginModule required unsecuredValidatorPrincipalClaimName="name" '
        'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="5";'
    )
    found, _ = settings(tmp_path, **named, **{f"{PREFIX}.sasl.jaas.config": jaas})
    assert found == UnsignedTokens("name", "scope", ("a", "b"), 5)
    for wrong in ('AllowableClockSkewMs="-1"', 'AllowableClockSkewMs="x"', 'RequiredScope="\\""'):
        jaas = f"{PACKAGE}.OAuthBearerLoginModule required unsecuredValidator{wrong};"
        with pytest.raises(ConfigError, match="unsecuredValidator"):
            settings(tmp_path, **named, **{f"{PREFIX}.sasl.jaas.config": jaas})


def test_a_java_class_for_another_mechanism_stops_the_start(tmp_path):
    scram = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.server.callback.handler.class": UNSIGNED,
    }
    with pytest.raises(ConfigError, match="Java class"):
        settings(tmp_path, **scram)
