"""Secrets are compared in constant time (CVE-2021-38153): no `==` on passwords, proofs and keys of users. And
what holds one does not print it."""

import ast
import pathlib
import re

import pytest

from tests.kit.collecting import collected

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("apis", "config", "console", "coordinator", "security", "server", "spark_integration", "wire")
SECRET = re.compile(
    r"(^|_)(password|passwords|proof|secret|secrets|hmac|signature|stored_key|server_key|client_key|salted|"
    r"passphrase|token_hmac)$"
)
NO_SECRETS = {"_Names.password"}
"""The name of an option."""
COMPARING = {"startswith", "endswith", "find", "index", "count", "casefold", "eq", "ne", "__eq__"}
"""Calls that take longer, the more of a secret is right."""


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


def is_secret(node):
    return is_a_value(node) and any(SECRET.search(name) for name in names_in(node))


def other_comparisons(text):
    """By a method, by `operator.eq`, or by `match`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Match) and is_secret(node.subject):
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = [*node.args, node.func.value]
            if node.func.attr in COMPARING and any(map(is_secret, asked)):
                yield node.lineno


def printed_secrets(text):
    """The fields of classes that print all that they hold, as `Class.field`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef) or not prints_its_fields(node):
            continue
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and is_printed_secret(one):
                yield f"{node.name}.{ast.unparse(one.target)}"


PRINTING = ("dataclass", "NamedTuple", "Struct", "Message", "Record")
"""In decorators and bases."""


def prints_its_fields(node):
    has_repr = any(isinstance(one, ast.FunctionDef) and one.name == "__repr__" for one in node.body)
    declared = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return not has_repr and any(word in one for one in declared for word in PRINTING)


def is_printed_secret(field):
    hidden = {"repr=False", "hidden=True"}
    keywords = field.value.keywords if isinstance(field.value, ast.Call) else []
    if hidden & {ast.unparse(one) for one in keywords}:
        return False
    kind = ast.unparse(field.annotation)
    # A `Secret` hides itself; numbers and truths about secrets are none.
    if "Secret" in kind or kind in ("bool", "int", "float"):
        return False
    return bool(SECRET.search(ast.unparse(field.target)))


def sources_with_secrets():
    """Each source as (name, text) in which a word is a secret's: in the others is nothing to find."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "_formats" not in path.parts and any(map(SECRET.search, set(re.findall(r"\w+", text)))):
                yield str(path.relative_to(ROOT)), text


def test_no_secret_is_compared_by_equality():
    with collected() as failures:
        for name, text in sources_with_secrets():
            with failures.of(name):
                found = [*comparisons(text), *other_comparisons(text)]
                assert found == [], f"{name}: compare by hmac.compare_digest"


def test_what_holds_a_secret_does_not_print_it():
    with collected() as failures:
        for name, text in sources_with_secrets():
            with failures.of(name):
                found = set(printed_secrets(text)) - NO_SECRETS
                assert not found, "a field with repr=False, on_wire(hidden=True), a Secret, or a __repr__"


def test_compiled_modules_know_no_secret():
    """Their comparisons are not looked at."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.p*"))
    modules = [path for path in paths if path.suffix in (".pyx", ".pxi")]
    assert modules
    words = [(path.name, word) for path in modules for word in re.findall(r"\w+", path.read_text())]
    assert [one for one in words if SECRET.search(one[1])] == []


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


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("password.startswith(guess)", True),
        ("guess.startswith(self.password)", True),
        ("operator.eq(proof, other)", True),
        ("match stored_key:\n    case 1: pass", True),
        ("path.startswith(prefix)", False),
        ("password.encode()", False),
    ],
)
def test_another_comparison_of_secrets_would_be_found(text, is_found):
    assert bool(list(other_comparisons(text))) is is_found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@dataclass(slots=True)\nclass A:\n    password: str", ["A.password"]),
        ("class A(NamedTuple):\n    stored_key: bytes\n    salt: bytes", ["A.stored_key"]),
        ("@dataclass\nclass A:\n    password: str = field(repr=False)", []),
        ("class A(Struct):\n    hmac: bytes = on_wire(BYTES, hidden=True)", []),
        ("class A(Message, api_key=3):\n    hmac: bytes = on_wire(BYTES)", ["A.hmac"]),
        ("@dataclass\nclass A:\n    password: Secret", []),
        ("@dataclass\nclass A:\n    password: str\n    def __repr__(self): return ''", []),
        ("class A:\n    password: str", []),
    ],
)
def test_a_field_that_prints_a_secret_would_be_found(text, found):
    assert list(printed_secrets(text)) == found
