"""The layers and their direction, read from the source: each failure says what to write instead."""

import ast
import pathlib
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


def sources():
    for layer, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT / folder)
            if relative.parts[0] not in {"_root", "_formats"}:
                yield layer, path


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
    for line, name in imported_names(ast.parse(path.read_text())):
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
