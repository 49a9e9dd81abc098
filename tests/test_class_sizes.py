"""No class of the product has more than 30 public methods: each part has one story, and is held by what uses
it. A method stands in its class, where an editor finds it: none is assigned in `__init__`. The compiled
pipeline of requests is in parts that can be read one by one."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = (
    "wire",
    "config",
    "storage",
    "coordinator",
    "apis",
    "security",
    "server",
    "embedding",
    "offline",
    "client",
    "console",
    "commands",
    "spark_integration",
)
METHODS_MAX = 30
PIPELINE_LINES_MAX = 800
ASSIGNED = {
    "server/network/connection.py: Connection.buffer_updated",
    "server/network/connection.py: Connection.get_buffer",
}
"""Methods that asyncio calls for each read: a call of ours before the compiled one would cost as much."""
COMPILED = (".pyx", ".pxi")
_METHOD = re.compile(r"^[ \t]+(?:async )?def ", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_PLAIN_METHOD = re.compile(r"^    (?:async )?def ([a-z]\w*)\(", re.MULTILINE)
_VALUE = re.compile(r"^    (?:@\w*property\n    def )?(\w+)(?:\(self|: (?!Callable))", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^ +self\.(\w+)(?:: [^=\n]+)? = (?![\w.]+\.\1$)", re.MULTILINE)
"""Names of values: a property or a field; an attribute that is no method of another object."""
_ASSIGNED = re.compile(r"^ +self\.([a-z]\w*)(?:: [^=\n]+)? = [\w.]+\.\1$", re.MULTILINE)
"""A method, or a function, that is an attribute of an object."""
_COMPILED_CLASS = re.compile(r"(?:cdef )?class (\w+)")
_COMPILED_METHOD = re.compile(r" {4}(?:def|cp?def)\s(?:[^=(]*\s)?[a-z]\w*\(")


def methods_in_source(text: str) -> dict[str, int]:
    """Class -> public methods. A property counts once, whatever it has beside its getter."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found[node.name] = len({one.name for one in methods if not one.name.startswith("_")})
    return found


def methods_in_compiled(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if opening := _COMPILED_CLASS.match(line):
            name = opening[1]
            found[name] = 0
        elif line and not line.startswith((" ", "#", ")", "@")):
            name = ""
        elif name and _COMPILED_METHOD.match(line):
            found[name] += 1
    return found


def large_classes(root: pathlib.Path) -> dict[str, int]:
    """`module.py: Class` -> public methods, for every class of the product with more than there may be. A
    file with fewer methods in all has none, and is not parsed."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.p[yx]*")):
            text = path.read_text() if path.suffix in (".py", *COMPILED) else ""
            read = methods_in_source if path.suffix == ".py" else methods_in_compiled
            if path.suffix in COMPILED or len(_METHOD.findall(text)) > METHODS_MAX:
                name = path.relative_to(root).as_posix()
                found |= {f"{name}: {one}": count for one, count in read(text).items() if count > METHODS_MAX}
    return found


def assigned_methods(texts: dict[str, str]) -> set[str]:
    """`file: Class.name` of each method that a class takes from another object under the same name."""
    methods = {name for text in texts.values() for name in _PLAIN_METHOD.findall(text)}
    methods -= {name for text in texts.values() for name in _VALUE.findall(text) + _ATTRIBUTE.findall(text)}
    found = set()
    for file, text in texts.items():
        for match in _ASSIGNED.finditer(text):
            if match[1] in methods:
                name = _CLASS.findall(text, 0, match.start())[-1]
                found.add(f"{file}: {name}.{match[1]}")
    return found


def test_no_class_has_more_than_30_methods():
    large = large_classes(ROOT)
    assert not large, f"give a part of it to a class of its own, which this one holds: {large}"


def test_each_part_of_the_pipeline_has_fewer_than_800_lines():
    parts = [*(ROOT / "server" / "network").glob("*.p[xy][xid]")]
    lines = {path.name: len(path.read_text().splitlines()) for path in parts}
    assert {"_pipeline.pyx", "_pipeline.pyi", "requests.pxi", "turn.pxi"} <= lines.keys()
    assert max(lines.values()) < PIPELINE_LINES_MAX, f"give it a part more: {lines}"


def test_no_method_is_assigned():
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py*"))
        if path.suffix in (".py", ".pyi")
    }
    found = assigned_methods(texts)
    assert found == ASSIGNED, f"write a method, or let callers ask the part itself: {found ^ ASSIGNED}"


def test_an_assigned_method_is_found():
    text = (
        "class Part:\n    def run(self): ...\n    @property\n    def size(self): ...\n"
        "class Whole:\n    def __init__(self, part):\n        self.run = part.run\n"
        "        self.size = part.size\n        self._run = part.run\n"
    )
    assert assigned_methods({"a.py": text}) == {"a.py: Whole.run"}


def test_a_large_class_is_found_in_every_folder(tmp_path):
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(METHODS_MAX + 1))
    for folder in FOLDERS:
        assert any((ROOT / folder).rglob("*.py")), folder
        (tmp_path / folder).mkdir()
        for suffix in ("py", "pyx", "pxi"):
            (tmp_path / folder / f"one.{suffix}").write_text(
                f"class Large:\n{methods}\n\nclass Small:\n    x = 1\n"
            )
    found = large_classes(tmp_path)
    assert found == {
        f"{folder}/one.{suffix}: Large": 31 for folder in FOLDERS for suffix in ("py", "pyx", "pxi")
    }


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (
            methods_in_source,
            "class One:\n    @property\n    def a(self): ...\n    @a.setter\n    def a(self, b): ...\n"
            "    async def c(self): ...\n    def _e(self): ...\n    d = 1\n",
        ),
        (
            methods_in_compiled,
            "cdef class One:\n    cdef int d\n    cdef dict e = {}\n\n    def a(self): ...\n"
            "    cdef inline bint c(self) except -1: ...\n    def _i(self): ...\n\n"
            "cdef int f(int g):\n    h = 1\n",
        ),
    ],
)
def test_methods_are_counted(read, text):
    assert read(text) == {"One": 2}
