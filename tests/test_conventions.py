"""Conventions that a reader of the tests counts on."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections import Counter
from collections.abc import Iterator

CHECKOUT = pathlib.Path(__file__).parent.parent

PUBLIC = {
    # of named tuples and of os
    *("_replace", "_asdict", "_fields", "_exit"),
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
    "tests/coordinator/test_transcripts.py": 4,
    "tests/server/test_group_flush.py": 3,
    "tests/server/test_intervals.py": 3,
    "tests/server/test_produce_prefix.py": 1,
    "tests/storage/test_cold_files.py": 2,
    "tests/storage/test_os_disk.py": 6,
    "tests/storage/test_preallocation.py": 1,
    "tests/storage/test_staging.py": 1,
    "tests/wire/test_messages_elsewhere.py": 1,
    "compat_tests/groups/member.py": 3,
    "compat_tests/transactions/planted/sitecustomize.py": 3,
}
"""File -> how many private attributes of the product or of a client it reaches into. A test uses a public
handle or the wire; what is here waits for one. The number only goes down."""


def private_attributes(path: pathlib.Path) -> Iterator[str]:
    """Each `one._attribute` of which the file itself does not define the attribute."""
    tree = ast.parse(path.read_text())
    own = set(_defined(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        is_of_owner = isinstance(node.value, ast.Name) and node.value.id in OWNERS
        if not is_of_owner and node.attr not in own | PUBLIC:
            yield ast.unparse(node)


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
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
            for place in private_attributes(path):
                found[name] += 1
                places.append(f"{name}: {place}")
    assert dict(found) == PRIVATE_ATTRIBUTES, (
        "use a public handle or the wire; where one has gone, correct the number:\n" + "\n".join(places)
    )


def imports_of_our_tests(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """(file, name) of each name that a file takes from another file of the tests or of the tools."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = CHECKOUT.joinpath(*node.module.split("."))
            if node.module.split(".")[0] in {"tests", "compat_tests", "benchmarks", "tools"}:
                file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
                yield from ((str(file.relative_to(CHECKOUT)), name.name) for name in node.names)


@functools.cache
def names_of(file: str) -> set[str]:
    """All names that a file defines or imports, and the modules of its folder if it is a package."""
    path = CHECKOUT / file
    names = {module.stem for module in path.parent.glob("*")} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
        names.update(_name_defined_by(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_every_name_that_tests_take_from_each_other_exists() -> None:
    """A suite that `make check` does not run would find out late: nothing else reads those files."""
    missing = []
    for folder in ("tests", "compat_tests", "benchmarks", "tools"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            for file, name in imports_of_our_tests(path):
                if name not in names_of(file):
                    missing.append(f"{path.relative_to(CHECKOUT)}: {name} of {file}")
    assert missing == []
