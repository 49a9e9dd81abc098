"""Conventions that a reader of the tests counts on."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections import Counter
from collections.abc import Iterator

CHECKOUT = pathlib.Path(__file__).parent.parent

PUBLIC = {
    # of named tuples and of os
    *("_replace", "_asdict", "_fields", "_exit"),
    # of argparse, which has no other list of what a parser takes
    *("_actions", "_SubParsersAction"),
    # of PySpark, whose documentation names them
    *("_jvm", "_jsc", "_jsparkSession"),
}
OWNERS = {"self", "cls", "KafkaError"}
"""Names whose private attributes are the file's own, or, in confluent-kafka, constants."""

PRIVATE_ATTRIBUTES = {
    "tests/apis/test_opening.py": 2,
    "tests/apis/test_transaction_verification.py": 2,
    "tests/coordinator/stages/streams_stage.py": 2,
    "tests/coordinator/test_compaction.py": 1,
    "tests/coordinator/test_group_coordinator.py": 1,
    "tests/coordinator/test_pending_offsets.py": 1,
    "tests/coordinator/test_settings.py": 1,
    "tests/coordinator/test_transcripts.py": 3,
    "tests/server/test_group_flush.py": 3,
    "tests/server/test_intervals.py": 3,
    "tests/server/test_produce_prefix.py": 1,
    "tests/storage/test_cold_files.py": 2,
    "tests/storage/test_os_disk.py": 6,
    "tests/storage/test_preallocation.py": 1,
    "tests/wire/test_messages_elsewhere.py": 1,
    "compat_tests/cluster/conftest.py": 2,  # of pytest: a fixture that ends before its scope does
    "compat_tests/groups/libraries/aio.py": 1,
    "compat_tests/groups/libraries/kafka_python.py": 2,
    "compat_tests/transactions/planted/sitecustomize.py": 3,
}
"""File -> how many private attributes of the product or of a client it reaches into. A test uses a public
handle or the wire; what is here waits for one. The number only goes down."""


REACHES_INSIDE = re.compile(r"(?<!\bself)(?<!\bcls)\._(?!_)\w")
"""Where a private attribute may be: a file without one is not parsed."""
IMPORT = re.compile(
    r"^[ \t]*from ((?:tests|compat_tests|benchmarks|tools)(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE
)
AT_THE_TOP = re.compile(r"^(?:(?:async )?def |class )?(\w+)(?=\(|:| = | *\[)", re.MULTILINE)
"""A name that a file defines at its top, as most names are that others import."""


@functools.cache
def source(path: pathlib.Path) -> str:
    return path.read_text()


def private_attributes(text: str) -> Iterator[str]:
    """Each `one._attribute` of which the file itself does not define the attribute."""
    if not REACHES_INSIDE.search(text):
        return
    nodes = list(ast.walk(ast.parse(text)))
    own = {name for node in nodes for name in _defined(node)}
    for node in nodes:
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        is_of_owner = isinstance(node.value, ast.Name) and node.value.id in OWNERS
        if not is_of_owner and node.attr not in own | PUBLIC:
            yield ast.unparse(node)


OPENERS = {"Of", "Those", "What", "Who", "As", "It", "They", "So"}
"""First words of docstrings that say too little: a noun or a verb says more."""
DOCSTRINGS_WITH_OPENERS = {
    "wire": 0,
    "config": 0,
    "storage": 0,
    "coordinator": 0,
    "apis": 0,
    "security": 0,
    "server": 0,
    "embedding": 0,
    "offline": 0,
    "client": 0,
    "console": 0,
    "commands": 0,
    "spark_integration": 0,
    "tools": 1,
    "benchmarks": 93,
    "tests": 296,
    "compat_tests": 352,
}
"""Folder -> docstrings that may open with one of `OPENERS`. A number only goes down."""
DOCSTRING = re.compile(r'"""(\w+)')


def test_docstrings_open_with_a_noun_or_a_verb() -> None:
    found: Counter[str] = Counter()
    places = []
    for folder in DOCSTRINGS_WITH_OPENERS:
        for path in sorted((CHECKOUT / folder).rglob("*.p*")):
            if path.suffix not in (".py", ".pyi", ".pyx", ".pxi"):
                continue
            for line in source(path).splitlines():
                opening = DOCSTRING.match(line.lstrip())
                if opening is not None and opening[1] in OPENERS:
                    found[folder] += 1
                    places.append(f"{path.relative_to(CHECKOUT)}: {line.strip()}")
    grown = {folder for folder, count in found.items() if count > DOCSTRINGS_WITH_OPENERS[folder]}
    assert not grown, "open with a noun or a verb:\n" + "\n".join(
        place for place in places if place.split("/")[0] in grown
    )


NOUNS = {"answer", "answers", "answering"}
"""Names for what goes back to a client, which is a response. Names may have participles of the verb."""
PRODUCT = sorted(DOCSTRINGS_WITH_OPENERS.keys() - {"tests", "compat_tests", "benchmarks", "tools"})
CALLED_ANSWERS = re.compile(
    r"\b(?:(?:an?|the|its|their|whose|no|\w+'s|\w+s'|ready|waiting|late|long|large|earlier) answers?"
    r"|(?:each|every|this) answer)\b",
    re.IGNORECASE,
)
"""The noun, by the word before it."""
COMMENTS_WITH_ANSWERS = dict.fromkeys(PRODUCT, 0) | {
    "tools": 0,
    "benchmarks": 19,
    "tests": 90,
    "compat_tests": 84,
}
"""Folder -> how often its comments and docstrings call a response an answer. A number only goes down."""
TEXT = re.compile(r'(?P<said>"""(?:.|\n)*?"""|#[^\n]*)|"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'")
"""Comments and docstrings, as `said`, and strings."""
PARTS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def sources_with_answers(folder: str) -> Iterator[tuple[pathlib.Path, str]]:
    for path in sorted((CHECKOUT / folder).rglob("*.p*")):
        if path.suffix in (".py", ".pyi", ".pyx", ".pxi") and "answer" in source(path).lower():
            yield path, source(path)


def nouns_in_code(text: str) -> Iterator[str]:
    for name in re.findall(r"\w+", TEXT.sub("", text)):
        if not NOUNS.isdisjoint(part.lower() for part in PARTS_OF_NAME.findall(name)):
            yield name


def test_no_name_of_the_product_calls_a_response_an_answer() -> None:
    places = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for folder in PRODUCT
        for path, text in sources_with_answers(folder)
        for name in {*nouns_in_code(path.stem), *nouns_in_code(text)}
    ]
    assert places == []


def test_no_more_comments_call_a_response_an_answer() -> None:
    found: Counter[str] = Counter()
    places = []
    for folder in COMMENTS_WITH_ANSWERS:
        for path, text in sources_with_answers(folder):
            for said in filter(None, (match["said"] for match in TEXT.finditer(text))):
                for named in CALLED_ANSWERS.findall(re.sub(r"\n[ #]*", " ", said)):
                    found[folder] += 1
                    places.append(f"{path.relative_to(CHECKOUT)}: {named}")
    grown = {folder for folder, count in found.items() if count > COMMENTS_WITH_ANSWERS[folder]}
    assert not grown, "call it a response:\n" + "\n".join(
        place for place in places if place.split("/")[0] in grown
    )


def test_a_name_with_an_answer_in_it_would_be_found() -> None:
    code = (
        "is_answered = _answer_ms = WorkAnswer  # no answer\nANSWERS_MAX = 'answer'; \"answers\"\nanswering()"
    )
    assert list(nouns_in_code(code)) == ["_answer_ms", "WorkAnswer", "ANSWERS_MAX", "answering"]


IS_NO = re.compile(r"(?<!here )\b(?:is|are) no (?!longer\b|more\b|such\b)\w+")
"""English of dictionaries in a sentence for users, who read "is not a directory" at once."""


def test_no_sentence_for_users_says_that_something_is_no_thing() -> None:
    places = [
        f"{path.relative_to(CHECKOUT)}: {match[0]}"
        for folder in PRODUCT
        for path in sorted((CHECKOUT / folder).rglob("*.py"))
        if " no " in source(path)
        for match in TEXT.finditer(source(path))
        if not match["said"] and IS_NO.search(match[0])
    ]
    assert places == [], "write 'is not a ...' or 'cannot be ...'"


def test_a_thing_that_is_no_thing_would_be_found() -> None:
    assert IS_NO.search("nosuch is no directory")
    assert IS_NO.search("these are no offsets")
    assert not IS_NO.search("There is no topic; it is no longer there")


def _defined(node: ast.AST) -> Iterator[str]:
    yield from _name_defined_by(node)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield from [node.attr] if ast.unparse(node.value) in OWNERS else []


def _name_defined_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def test_no_more_tests_reach_into_private_attributes_than_are_listed() -> None:
    found: Counter[str] = Counter()
    places = []
    for folder in ("tests", "compat_tests"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            name = str(path.relative_to(CHECKOUT))
            for place in private_attributes(source(path)):
                found[name] += 1
                places.append(f"{name}: {place}")
    assert dict(found) == PRIVATE_ATTRIBUTES, (
        "use a public handle or the wire; where one has gone, correct the number:\n" + "\n".join(places)
    )


def imports_of_our_tests(text: str) -> Iterator[tuple[str, str]]:
    """(file, name) of each name that a source takes from another file of the tests or of the tools."""
    for module, imported in IMPORT.findall(text):
        path = CHECKOUT.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for name in re.sub(r"#[^\n]*|[()]", "", imported).split(","):
            if name.strip():
                yield str(file.relative_to(CHECKOUT)), name.split()[0]


def has_name(file: str, name: str) -> bool:
    """Whether a file defines or imports a name, or is a package with a module of this name."""
    path = CHECKOUT / file
    if path.name == "__init__.py" and any(path.parent.glob(f"{name}*")):
        return True
    return path.exists() and (name in _names_at_the_top(path) or name in _all_names(path))


@functools.cache
def _names_at_the_top(path: pathlib.Path) -> set[str]:
    return set(AT_THE_TOP.findall(source(path)))


@functools.cache
def _all_names(path: pathlib.Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source(path))):
        names.update(_name_defined_by(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_every_name_that_tests_take_from_each_other_exists() -> None:
    """A suite that `make check` does not run would find out late: nothing else reads those files."""
    missing = []
    for folder in ("tests", "compat_tests", "benchmarks", "tools"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            for file, name in imports_of_our_tests(source(path)):
                if not has_name(file, name):
                    missing.append(f"{path.relative_to(CHECKOUT)}: {name} of {file}")
    assert missing == []


def test_a_name_that_is_not_there_would_be_found() -> None:
    text = "from tests.kit.collecting import (\n    Failures,  # of cases\n    collected as one,\n)\n"
    found = list(imports_of_our_tests(f"{text}def f():\n    from tests.kit import gone, collecting\n"))
    names = ["Failures", "collected", "gone", "collecting"]
    assert [name for _, name in found] == names
    assert [has_name(*one) for one in found] == [True, True, False, True]
    assert not has_name("tests/kit/collecting.py", "gone")
    assert not has_name("tests/kit/gone.py", "Failures")


def test_an_attribute_of_others_would_be_found() -> None:
    text = (
        "self._a = 1\ndef _b(): ...\none._b\none._a\none._c.d\nself._e\ncls._f\none.__g__\none._replace()\n"
    )
    assert list(private_attributes(text)) == ["one._c"]
    assert list(private_attributes("self._a\nself.b[0]._c\n")) == ["self.b[0]._c"]


def test_only_the_package_itself_says_which_names_are_public() -> None:
    """`__all__` elsewhere names what the others import anyway."""
    said = []
    for folder in DOCSTRINGS_WITH_OPENERS.keys() - {"tests", "compat_tests", "benchmarks", "tools"}:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            if "\n__all__ =" in source(path) and path.parent != CHECKOUT / "server" / "_root":
                said.append(str(path.relative_to(CHECKOUT)))
    assert said == []
