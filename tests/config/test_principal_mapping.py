"""Rules for principals; `compat_tests/security/test_principals.py` compares with Kafka's own class."""

import pytest

from odradek.config.config_error import ConfigError
from odradek.config.principal_mapping import NoRuleMatches, PrincipalMapping

NAME = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        (" , DEFAULT ,", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1@$2/U", "ALICE@$2"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$12/", "Alice2"),
        ("RULE:^CN=nobody$/x/,DEFAULT", NAME),
        ("RULE:CN=Alice/part/,RULE:.*/whole/", "wholewhole"),
        ("RULE:^CN=(?<who>[^,]+),.*/$1/", "Alice"),
        ("RULE:^.*$/a\\/b\\$1/", "a/b$1"),
    ],
)
def test_the_first_rule_that_takes_the_whole_name_makes_the_user(rules: str, user: str) -> None:
    assert PrincipalMapping(rules).name_of(NAME) == user


@pytest.mark.parametrize("rules", ["", "RULE:^CN=x$/y/", "RULE:CN=Alice/y/"])
def test_a_name_that_no_rule_takes_has_no_user(rules: str) -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalMapping(rules).name_of(NAME)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:a/b",
        "RULE:a/b/LU",
        "RULE:a/b/X",
        "DEFAULT RULE:a/b/",
        "RULE:(/x/",
        "RULE:(.*)/$x/",
        "RULE:.*/$1/",
        "RULE:[a&&b]/x/",
        "RULE:\\Qa\\E/x/",
        "RULE:\\p{Alpha}/x/",
    ],
)
def test_what_is_no_rule_is_refused_with_its_text(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules has "):
        PrincipalMapping(rules)


def test_a_dot_takes_no_end_of_line_so_nobody_gets_a_name_by_a_second_line() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*?),.*$/$1/")
    for separator in "\n\r\x85\u2028\u2029":
        with pytest.raises(NoRuleMatches):
            mapping.name_of(f"CN=x{separator}CN=Alice,O=Org")
