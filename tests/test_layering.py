"""The layers and their direction, read from the source: each failure says what to write instead."""

import ast
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = {
    "wire": "wire",
    "storage": "storage",
    "coordinator": "coordinator",
    "apis": "apis",
    "server": "server",
    "spark": "spark_integration",
}
MAY_IMPORT = {
    "wire": {"wire"},
    "storage": {"storage", "wire"},
    "coordinator": {"coordinator", "wire"},
    "apis": {"apis", "storage", "coordinator", "wire"},
    "server": {"server", "apis", "storage", "coordinator", "wire"},
    "spark": {"spark", "wire", "storage"},
}
IMPURE = {"asyncio", "socket", "time", "random", "threading"}
NO_FILES = {"os", "pathlib"}
FORBIDDEN = {"wire": IMPURE | NO_FILES, "coordinator": IMPURE | NO_FILES, "storage": IMPURE}
EXCEPTIONS = {("coordinator", "driver.py", "asyncio")}
COMMAND_LINES = {("server", "cli.py", "odradek.spark.cli")}
"""One command has all subcommands; this one is imported when it is used, and by nobody else."""


IMPORT = re.compile(
    r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?c?import\b[ \t]*(?:\([^)]*\)|(?:\\\n|[^\n])*))", re.MULTILINE
)
"""An import in Cython, to the end of its brackets or of its line."""


def sources():
    for layer, folder in FOLDERS.items():
        for kind in ("*.py", "*.pyi", "*.pyx", "*.pxd"):
            for path in sorted((ROOT / folder).rglob(kind)):
                relative = path.relative_to(ROOT / folder)
                if relative.parts[0] not in {"_root", "_formats"}:
                    yield layer, path


def syntax_tree(path):
    """Of Cython, which `ast` cannot read, only the imports; a `cimport` as the import that it is."""
    text = path.read_text()
    if path.suffix in (".py", ".pyi"):
        return ast.parse(text)
    lines = []
    for found in IMPORT.finditer(text):
        lines += [""] * (text.count("\n", 0, found.start(1)) - len(lines))
        lines += re.sub(r"\bcimport\b", "import", found[1]).split("\n")
    return ast.parse("\n".join(lines))


def imported_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "odradek":
                yield from ((node.lineno, f"odradek.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


@pytest.mark.parametrize(("layer", "path"), list(sources()), ids=lambda value: getattr(value, "name", value))
def test_a_layer_imports_only_what_is_below_it(layer, path):
    complaints = []
    for line, name in imported_names(syntax_tree(path)):
        top, _, rest = name.partition(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if top == "odradek" and rest:
            target = rest.partition(".")[0]
            allowed = target in MAY_IMPORT[layer] or (layer, path.name, name) in COMMAND_LINES
            if target in FOLDERS and not allowed:
                complaints.append(
                    f"{where} imports odradek.{target}: {layer} may only know {sorted(MAY_IMPORT[layer])}; "
                    "take what you need as an argument or a Protocol"
                )
        elif top in FORBIDDEN.get(layer, ()) and (layer, path.name, top) not in EXCEPTIONS:
            complaints.append(
                f"{where} imports {top}: {layer} takes time, randomness and files as arguments "
                "(`now_ms`, a Disk); move the call into server/"
            )
        elif top in FOLDERS or top == "spark_integration":
            complaints.append(f"{where} imports {top}: write `from odradek.{top} import ...`")
    assert not complaints, "\n".join(complaints)


def test_the_imports_of_compiled_sources_are_read(tmp_path):
    path = tmp_path / "compiled.pyx"
    path.write_text(
        "cdef int x = 1\n\nfrom libc.string cimport memcpy\n"
        "from odradek.server import (\n    broker,\n    config,\n)\n"
        "cdef f():\n    import time\n    from odradek.apis cimport one, \\\n        two\n"
    )
    found = list(imported_names(syntax_tree(path)))
    assert found == [(3, "libc.string"), (4, "odradek.server"), (9, "time"), (10, "odradek.apis")]
    assert {path.suffix for _, path in sources()} >= {".py", ".pyx"}


def test_no_layer_of_the_broker_sends_what_kafka_never_sends_to_idempotent_producers():
    """A batch sent again is answered with its offset, and a producer that is forgotten begins anew."""
    never = ("DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
    found = [
        f"{path.relative_to(ROOT)} names {name}"
        for layer, path in sources()
        if layer in {"apis", "storage", "coordinator", "server"}
        for name in never
        if name in path.read_text()
    ]
    assert not found, "\n".join(found)


def test_every_folder_with_modules_is_in_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folder_of = {folder: layer for layer, folder in FOLDERS.items()}
    missing = []
    for folder, layer in folder_of.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            if inner and inner[0] in {"_root", "_formats"}:
                continue
            package = ".".join(("odradek", layer, *inner))
            if package not in listed:
                missing.append(f"{package}: add it to [tool.setuptools] packages in pyproject.toml")
    assert not missing, "\n".join(missing)
