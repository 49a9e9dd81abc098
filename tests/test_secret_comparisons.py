"""Secrets are compared in constant time (CVE-2021-38153): no `==` on passwords, proofs and keys of users."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("apis", "config", "coordinator", "security", "server", "spark_integration", "wire")
SECRET = re.compile(
    r"(^|_)(password|passwords|proof|secret|secrets|hmac|signature|stored_key|server_key|client_key|salted|"
    r"passphrase|token_hmac)$"
)
NOT_SECRET = {"None"}


def names_in(node):
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def is_a_value(node):
    """Whether it may be the value of a secret, and not its length or its absence."""
    if isinstance(node, ast.Constant | ast.Call):
        return False
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def comparisons(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare) and any(
            isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in node.ops
        ):
            sides = [node.left, *node.comparators]
            if any(
                is_a_value(side) and any(SECRET.search(name) for name in names_in(side)) for side in sides
            ):
                yield node.lineno


def sources():
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "_formats" not in path.parts
    ]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_secret_is_compared_by_equality(path):
    found = list(comparisons(path.read_text()))
    assert found == [], f"{path}: compare by hmac.compare_digest"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("password == other", True),
        ("one.stored_key != two", True),
        ("found['x'] in self._secrets", True),
        ("given == self.proof[3]", True),
        ("len(proof) != len(signature)", False),
        ("password is None", False),
        ("hmac.compare_digest(password, other)", False),
        ("token == other", False),
    ],
)
def test_a_comparison_of_secrets_would_be_found(text, is_found):
    assert bool(list(comparisons(text))) is is_found
