"""The layers and their direction, read from the source: each failure says what to write instead."""

import ast
import functools
import pathlib
import re
import tomllib

import pytest

from tests.kit.collecting import collected

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = {
    "wire": "wire",
    "config": "config",
    "storage": "storage",
    "coordinator": "coordinator",
    "apis": "apis",
    "security": "security",
    "server": "server",
    "embedding": "embedding",
    "offline": "offline",
    "client": "client",
    "console": "console",
    "commands": "commands",
    "spark": "spark_integration",
    "odradek": "server/_root",
}
OTHER_PACKAGES = {"_root", "_formats"}
"""Folders in the folder of a layer that are no part of it."""
MAY_IMPORT = {
    "wire": {"wire"},
    "config": {"config", "wire"},
    "storage": {"storage", "wire"},
    "coordinator": {"coordinator", "config", "wire"},
    "apis": {"apis", "storage", "coordinator", "config", "wire"},
    "security": {"security", "config", "wire"},
    "server": {"server", "apis", "security", "storage", "coordinator", "config", "wire"},
    "embedding": {"embedding", "server", "config", "wire"},
    "offline": {"offline", "storage", "coordinator", "config", "wire"},
    "client": {"client", "security", "config", "wire"},
    "console": {"console", "client", "security", "config", "wire"},
    "commands": {
        *(
            "commands",
            "client",
            "console",
            "apis",
            "server",
            "embedding",
            "security",
            "offline",
            "spark",
            "config",
        ),
        "wire",
    },
    "spark": {"spark", "client", "security", "storage", "config", "wire"},
    "odradek": {"embedding", "commands", "wire"},
}
ROOMS_MAY_IMPORT = {
    "apis.controller": set(),
    "client.admin": set(),
    "console.screens": set(),
    "coordinator.client_metrics": set(),
    "coordinator.cluster": {"coordinator.client_metrics", "coordinator.security"},
    "coordinator.controller": {"coordinator.cluster", "coordinator.security"},
    "coordinator.groups": {"coordinator.cluster", "coordinator.groups.epochs"},
    "coordinator.groups.epochs": {"coordinator.cluster", "coordinator.groups"},
    "coordinator.kraft": set(),
    "coordinator.replication": set(),
    "coordinator.security": {"coordinator.cluster"},
    "coordinator.shares": set(),
    "coordinator.shares.dead_letters": {"coordinator.shares.state"},
    "coordinator.shares.groups": {
        *("coordinator.cluster", "coordinator.groups", "coordinator.groups.epochs"),
        "coordinator.shares.state",
    },
    "coordinator.shares.partitions": {"coordinator.shares.dead_letters", "coordinator.shares.state"},
    "coordinator.shares.state": {"coordinator.cluster"},
    "coordinator.streams": {"coordinator.cluster", "coordinator.groups", "coordinator.groups.epochs"},
    "coordinator.transactions": {"coordinator.cluster"},
    "coordinator.zookeeper": {"coordinator.cluster", "coordinator.security"},
    "server.background": {"server.network", "server.process"},
    "server.cluster": {
        *("server.network", "server.metadata", "server.background", "server.coordination"),
        *("server.security", "server.security.sasl"),
        *("server.controller", "server.phase_bind", "server.phase_open", "server.phase_serve"),
    },
    "server.controlling": {
        *("server.network", "server.metadata", "server.background"),
        "server.node_parts",
    },
    "server.coordination": {"server.network", "server.background"},
    "server.kafka07": {"server.network", "server.background"},
    "server.metadata": set(),
    "server.metrics": {"server.network", "server.background", "server.coordination", "server.cluster"},
    "server.network": set(),
    "server.process": set(),
    "server.test_kit": {
        *(
            "server.background",
            "server.coordination",
            "server.metadata",
            "server.network",
            "server.security.sasl",
        ),
    },
    "server.security": {"server.network", "server.metadata", "server.security.sasl"},
    "server.security.sasl": {"server.network", "server.background", "server.security"},
    "server.workers": {
        *("server.network", "server.metadata", "server.background", "server.process"),
        *("server.controlling", "server.broker"),
        *("server.phase_bind", "server.phase_open", "server.topic_logs"),
    },
    "server.zookeeper": {"server.network", "server.phase_serve"},
    "spark.jobs": set(),
    "storage.compaction": {"storage.log"},
    "storage.directories": {"storage.log", "storage.recovery", "storage.compaction"},
    "storage.log": set(),
    "storage.recovery": {"storage.log"},
    "wire.kafka07": set(),
    "wire.messages": set(),
}
"""Room (a sub-package) -> what it may import of its layer beside itself: other rooms, and modules of `server`
that stand above its rooms."""
BELOW = {"server": {"server.extensions", "server.node", "server.reconfiguration"}}
"""Layer -> its own modules that every room may import. All others of the layer stand above its rooms: a room
imports one only if its row names it. Where the layer is not here, every room may import all of them."""
WITH_CONTENT = {"spark.jobs", "wire.kafka07", "wire.messages"}
"""Rooms whose `__init__.py` is more than a docstring: a public name, an exception, the index of messages."""
FLOORS_MAX = {"server": 11}
"""Layer -> its modules on the longest way from one down to the next. The number only goes down."""
WITH_A_BASE = {"storage"}
"""Layers whose own modules serve all their rooms, and know none."""
IMPURE = {"asyncio", "socket", "time", "random", "threading"}
NO_FILES = {"os", "pathlib"}
FORBIDDEN = {
    "wire": IMPURE | NO_FILES,
    "config": IMPURE,
    "coordinator": IMPURE | NO_FILES,
    "storage": IMPURE,
    "security": IMPURE,
    "offline": IMPURE - {"time"},
}
EXCEPTIONS = {
    ("config", "listeners.py", "socket"),  # inet_aton, which only reads a text
}
READ_BY_STARTS_AND_OFFLINE = {
    "odradek.server.metadata.meta_properties",
    "odradek.server.metadata.metadata_log",
    "odradek.server.metadata.metadata_log_opening",
    "odradek.server.metadata.metadata_log_repair",
    "odradek.server.metadata.metadata_log_start",
    "odradek.server.metadata.migration",
}
"""Files of a data directory that are no log's; the tools read and mend them as a start does."""
SHOWN_BY_THE_CONSOLE = {
    "odradek.commands.acls",
    "odradek.commands.cluster",
    "odradek.commands.configs",
    "odradek.commands.decoding",
    "odradek.commands.group_changes",
    "odradek.commands.groups",
    "odradek.commands.output",
    "odradek.commands.producers",
    "odradek.commands.quotas",
    "odradek.commands.reading_range",
    "odradek.commands.record_json",
    "odradek.commands.selecting",
    "odradek.commands.topics",
    "odradek.commands.topologies",
    "odradek.commands.transactions",
}
"""Commands whose rows, plans and forms the console shows, too; none of them leads back to it."""
BY_NAME_TOO = {"offline": READ_BY_STARTS_AND_OFFLINE, "console": SHOWN_BY_THE_CONSOLE}
"""Layer -> modules of other layers that it may import beside `MAY_IMPORT`."""

IMPORT = re.compile(
    r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?c?import\b[ \t]*(?:\([^)]*\)|(?:\\\n|[^\n])*))", re.MULTILINE
)
"""An import in Cython, to the end of its brackets or of its line."""


PAGE = (ROOT / "docs" / "architecture.md").read_text()
LAYER_ROW = re.compile(r"^\| `([\w/]+)/` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
BY_NAME = re.compile(r", and (\d+) modules of `([\w/]+)` by name")
LEAVES = re.compile(r"A newcomer may leave these aside.*?\n\n", re.DOTALL)


@functools.cache
def sources():
    """Every source of the product as (layer, path)."""
    return [
        (layer, path)
        for layer, folder in FOLDERS.items()
        for kind in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.pxi")
        for path in sorted((ROOT / folder).rglob(kind))
        if path.relative_to(ROOT / folder).parts[0] not in OTHER_PACKAGES
    ]


def module_of(layer, path):
    relative = path.relative_to(ROOT / FOLDERS[layer]).with_suffix("")
    inner = [part for part in relative.parts if part != "__init__"]
    return ".".join(["odradek", *inner] if layer == "odradek" else ["odradek", layer, *inner])


@functools.cache
def packages():
    return {"odradek"} | {module_of(*source) for source in sources() if source[1].name == "__init__.py"}


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
            if node.module in packages():
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


@functools.cache
def imports_of(path):
    """What a file imports as (line, name); read once for all tests."""
    return list(imported_names(syntax_tree(path)))


def test_a_layer_imports_only_what_is_below_it():
    with collected() as failures:
        for layer, path in sources():
            with failures.of(path.relative_to(ROOT)):
                complaints = list(imports_from_elsewhere(layer, path))
                assert not complaints, "\n".join(complaints)


def imports_from_elsewhere(layer, path):
    """What a file imports and may not, each with what to write instead."""
    for line, name in imports_of(path):
        top, _, rest = name.partition(".")
        where = f"{path.relative_to(ROOT)}:{line}"
        if top == "odradek":
            target = rest.partition(".")[0]
            modules = BY_NAME_TOO.get(layer, ())
            allowed = target in MAY_IMPORT[layer] or name in modules or name.rpartition(".")[0] in modules
            if not allowed:
                yield (
                    f"{where} imports {name}: {layer} may only know {sorted(MAY_IMPORT[layer])}; "
                    "take what you need as an argument or a Protocol"
                )
        elif top in FORBIDDEN.get(layer, ()) and (layer, path.name, top) not in EXCEPTIONS:
            yield (
                f"{where} imports {top}: {layer} takes time, randomness and files as arguments "
                "(`now_ms`, a Disk); move the call into server/"
            )
        elif top in FOLDERS or top == "spark_integration":
            yield f"{where} imports {top}: write `from odradek.{top} import ...`"


def test_the_page_for_newcomers_says_what_a_layer_may_import():
    said = {folder: BY_NAME.sub("", cell) for folder, cell in LAYER_ROW.findall(PAGE)}
    assert {folder: {*cell.split(", ")} - {"nothing of ours"} for folder, cell in said.items()} == {
        folder: MAY_IMPORT[layer] - {layer} for layer, folder in FOLDERS.items()
    }
    listed = {folder: BY_NAME.findall(cell) for folder, cell in LAYER_ROW.findall(PAGE)}
    assert {folder: found for folder, found in listed.items() if found} == {
        FOLDERS[layer]: [
            (
                str(len(names)),
                {name.rpartition(".")[0] for name in names}.pop().removeprefix("odradek.").replace(".", "/"),
            )
        ]
        for layer, names in BY_NAME_TOO.items()
    }
    assert all(len({name.rpartition(".")[0] for name in names}) == 1 for names in BY_NAME_TOO.values())


def test_what_a_layer_may_import_by_name_is_imported():
    used = {
        (layer, name if name in names else name.rpartition(".")[0])
        for layer, names in BY_NAME_TOO.items()
        for other, path in sources()
        if other == layer
        for _, name in imports_of(path)
    }
    assert not [
        (layer, name) for layer, names in BY_NAME_TOO.items() for name in names if (layer, name) not in used
    ]


def test_the_page_for_newcomers_counts_what_may_be_left_aside():
    (text,) = LEAVES.findall(PAGE)
    folders = [ROOT / folder for folder in re.findall(r"`([\w/]+)/`", text)]
    assert len(folders) > 5
    lines = {path: len(path.read_text().splitlines()) for _, path in sources()}
    aside = sum(count for path, count in lines.items() if any(map(path.is_relative_to, folders)))
    said = [int(number.replace(",", "")) for number in re.findall(r"\d+,000", text)]
    counts = [aside, sum(lines.values())]
    assert said == pytest.approx(counts, abs=1000), "write the present counts"


def test_the_imports_of_compiled_sources_are_read(tmp_path):
    path = tmp_path / "compiled.pyx"
    path.write_text(
        "cdef int x = 1\n\nfrom libc.string cimport memcpy\n"
        "from odradek.server import (\n    broker,\n    config,\n)\n"
        "cdef f():\n    import time\n    from odradek.apis cimport one, \\\n        two\n"
    )
    found = list(imported_names(syntax_tree(path)))
    assert found == [
        (3, "libc.string"),
        (4, "odradek.server.broker"),
        (4, "odradek.server.config"),
        (9, "time"),
        (10, "odradek.apis.one"),
        (10, "odradek.apis.two"),
    ]
    assert {path.suffix for _, path in sources()} >= {".py", ".pyx"}


@functools.cache
def imports_by_module():
    """Every module of ours that a module imports: in functions and for types alone, too."""
    imports = {module_of(*source): set() for source in sources()}
    for layer, path in sources():
        module = module_of(layer, path)
        for _, name in imports_of(path):
            if name not in imports:
                name = name.rpartition(".")[0]  # of a package something that is no module
            if name in imports and name != module:
                imports[module].add(name)
    return imports


def in_circles(imports):
    """Pairs of who imports and what is imported, where that leads back."""
    return {(one, other) for one in imports for other in imports[one] if one in reached(imports, other)}


def reached(imports, start):
    found, waiting = set(), [start]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += imports[module]
    return found


def rooms():
    """Every sub-package of a layer."""
    return {name.removeprefix("odradek.") for name in packages() if name.count(".") >= 2}


def room_of(module):
    """The innermost room of a module; of a layer's own module, in `server`, its name. None: not judged."""
    name = module.removeprefix("odradek.")
    found = [room for room in ROOMS_MAY_IMPORT if f"{name}.".startswith(f"{room}.")]
    if found:
        return max(found, key=len)
    layer = name.partition(".")[0]
    return name if name not in {layer, *BELOW.get(layer, {name})} else None


def test_every_room_has_a_row():
    assert ROOMS_MAY_IMPORT.keys() == rooms(), "write what the room may import, or take its row away"


def imports_between_rooms():
    """(room, other room or module above, who imports, what is imported)."""
    for module, names in imports_by_module().items():
        room = room_of(module)
        for name in sorted(names):
            other = room_of(name)
            if room in ROOMS_MAY_IMPORT and other not in {None, room} and same_layer(module, name):
                yield room, other, module, name


def same_layer(*modules):
    return len({module.split(".")[1] for module in modules if "." in module}) == 1


def test_the_rooms_of_a_layer_know_each_other_as_their_rows_say():
    found = list(imports_between_rooms())
    complaints = [
        f"{module} imports {name}: {room} may only know {sorted(ROOMS_MAY_IMPORT[room])}"
        for room, other, module, name in found
        if other not in ROOMS_MAY_IMPORT[room]
    ]
    used = {(room, other) for room, other, _, _ in found}
    complaints += [
        f"{room} does not import {other} any more: take it out of the row"
        for room, others in ROOMS_MAY_IMPORT.items()
        for other in sorted(others)
        if (room, other) not in used
    ]
    complaints += [
        f"{module} imports {name}: what serves all rooms may know none"
        for module, names in imports_by_module().items()
        for name in sorted(names)
        if room_of(name) in ROOMS_MAY_IMPORT
        and room_of(module) is None
        and module.split(".")[1] in WITH_A_BASE
        and same_layer(module, name)
    ]
    complaints += [
        f"{init.relative_to(ROOT)} is not empty below its docstring: it is imported with each of its modules"
        for room in ROOMS_MAY_IMPORT.keys() - WITH_CONTENT
        for layer, *inner in [room.split(".")]
        for init in [ROOT.joinpath(FOLDERS[layer], *inner, "__init__.py")]
        if len(ast.parse(init.read_text()).body) != 1
    ]
    assert not complaints, "\n".join(complaints)


def test_no_import_leads_back():
    complaints = [
        f"{one} imports {other}, which leads back to it: put a Protocol below, or move the type down"
        for one, other in sorted(in_circles(imports_by_module()))
    ]
    assert not complaints, "\n".join(complaints)


def test_no_layer_has_more_floors_than_are_listed():
    imports = imports_by_module()

    def ways(layer):
        return {
            module: {name for name in names if name.startswith(f"odradek.{layer}.")}
            for module, names in imports.items()
            if module.startswith(f"odradek.{layer}.")
        }

    assert {layer: max(floors(ways(layer)).values()) for layer in FLOORS_MAX} == FLOORS_MAX


def floors(imports):
    """Module -> its floor: 1 where it imports nothing, else one above the highest that it imports."""

    @functools.cache
    def floor(module):
        return 1 + max(map(floor, imports[module]), default=0)

    return {module: floor(module) for module in imports}


def test_floors_are_counted_along_the_longest_way():
    assert floors({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}) == {"a": 3, "b": 2, "c": 1, "d": 2}


def test_a_circle_is_seen_in_functions_and_among_types_and_ends_with_one_import():
    circle = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert in_circles(circle) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert in_circles({**circle, "b": set()}) == set()
    source = (
        "if TYPE_CHECKING:\n    from odradek.storage.directories.store import Key\n"
        "def f():\n    from odradek.wire import codec\n"
    )
    found = list(imported_names(ast.parse(source)))
    assert found == [(2, "odradek.storage.directories.store"), (4, "odradek.wire.codec")]


def test_no_layer_of_the_broker_sends_what_kafka_never_sends_to_idempotent_producers():
    """A batch sent again is answered with its offset, and a producer that is forgotten begins anew. But other
    records with the numbers of an ended transaction, which Kafka loses, get UNKNOWN_PRODUCER_ID."""
    never = ("DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
    reused = "storage/log/producer_state.py names UNKNOWN_PRODUCER_ID"
    found = [
        f"{path.relative_to(ROOT)} names {name}"
        for layer, path in sources()
        if layer in {"apis", "storage", "coordinator", "server", "config"}
        for name in never
        if name in path.read_text()
    ]
    assert found == [reused], "\n".join(found)


def test_every_folder_with_modules_is_in_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folder_of = {folder: layer for layer, folder in FOLDERS.items()}
    missing = []
    for folder, layer in folder_of.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            package = module_of(layer, init)
            if not OTHER_PACKAGES.intersection(inner[:1]) and package not in listed:
                missing.append(f"{package}: add it to [tool.setuptools] packages in pyproject.toml")
    assert not missing, "\n".join(missing)
