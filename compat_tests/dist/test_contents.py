"""What lies in the files that are published."""

from __future__ import annotations

import email
import pathlib
import platform
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator

import pytest

from tools.build_dists import CHECKOUT, Dists, extension_modules

pytestmark = [
    pytest.mark.xdist_group("dists"),  # built once
]

SETTINGS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
VERSION = SETTINGS["project"]["version"]
FOLDERS = SETTINGS["tool"]["setuptools"]["package-dir"]
METADATA = f"odradek-{VERSION}.dist-info"


def modules_of_checkout() -> set[str]:
    """Every module of ours, by its path in an installed package."""
    modules = set()
    for package, folder in FOLDERS.items():
        for path in (CHECKOUT / folder).rglob("*.py"):
            inside = path.relative_to(CHECKOUT / folder)
            if (package, inside.parts[0]) in {("odradek.server", "_root"), ("odradek.spark", "_formats")}:
                continue  # folders of other packages
            modules.add(f"{package.replace('.', '/')}/{inside.as_posix()}")
    return modules


@pytest.fixture
def wheel(dists: Dists) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(dists.wheel) as archive:
        yield archive


def test_the_sdist_and_the_stable_abi_wheel_are_of_one_version(dists: Dists) -> None:
    assert dists.sdist.name == f"odradek-{VERSION}.tar.gz"
    assert dists.wheel.name.startswith(f"odradek-{VERSION}-cp311-abi3-")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a wheel for glibc is built where there is one")
def test_the_wheel_runs_with_every_glibc_since_2_17(wheel: zipfile.ZipFile, dists: Dists) -> None:
    assert f"manylinux_2_17_{platform.machine()}" in dists.wheel.stem.split("-")[-1].split(".")
    wanted = {
        tuple(map(int, version.split(b".")))
        for name in binaries(wheel)
        for version in re.findall(rb"GLIBC_(\d+\.\d+)", wheel.read(name))
    }
    assert max(wanted) <= (2, 17)


def test_a_wheel_has_every_module_of_the_checkout_and_nothing_else_of_python(wheel: zipfile.ZipFile) -> None:
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules_of_checkout()


def files_of_console() -> set[str]:
    """Templates, style sheet and script."""
    folder = CHECKOUT / FOLDERS["odradek.console"]
    found = {path for part in ("templates", "static") for path in (folder / part).iterdir()}
    assert len(found) > 10
    return {f"odradek/console/{path.relative_to(folder).as_posix()}" for path in found}


def test_beside_modules_a_wheel_has_the_type_marker_the_console_the_licence_and_its_metadata(
    wheel: zipfile.ZipFile,
) -> None:
    others = {name for name in wheel.namelist() if not name.endswith((".py", ".pyi", ".so", "/"))}
    assert others == {"odradek/py.typed"} | files_of_console() | {
        f"{METADATA}/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "top_level.txt", "entry_points.txt", "licenses/LICENSE")
    }


def binaries(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if name.endswith((".so", ".pyd", ".dylib"))}


def test_the_wheel_has_every_compiled_part_its_types_and_those_of_options(wheel: zipfile.ZipFile) -> None:
    parts = {name.replace(".", "/") for name in extension_modules()}
    assert binaries(wheel) == {f"{part}.abi3.so" for part in parts}
    stubs = {f"{part}.pyi" for part in parts} | {"odradek/config/option_values.pyi"}
    assert {name for name in wheel.namelist() if name.endswith(".pyi")} == stubs


def test_the_entry_points_are_a_console_script_and_a_pytest_plugin(wheel: zipfile.ZipFile) -> None:
    assert wheel.read(f"{METADATA}/entry_points.txt").decode().split() == [
        "[console_scripts]", "odradek", "=", "odradek.commands.main:main",
        "[pytest11]", "odradek", "=", "odradek.embedding.pytest_plugin",
    ]  # fmt: skip


def test_the_metadata_name_licence_python_and_readme(wheel: zipfile.ZipFile) -> None:
    metadata = email.message_from_bytes(wheel.read(f"{METADATA}/METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("odradek", VERSION)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload().strip() == (CHECKOUT / "README.md").read_text().strip()


def test_the_sdist_has_every_source_and_no_generated_file(dists: Dists) -> None:
    with tarfile.open(dists.sdist) as archive:
        names = {pathlib.PurePosixPath(name).relative_to(f"odradek-{VERSION}") for name in archive.getnames()}
    names = {str(name) for name in names}
    for folder in FOLDERS.values():
        for path in (CHECKOUT / folder).rglob("*"):
            if path.suffix in (".py", ".pyi", ".pyx", ".pxi", ".h", ".typed"):
                assert str(path.relative_to(CHECKOUT)) in names
    assert {name.removeprefix("odradek/") for name in files_of_console()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "docs/configuration.md"} <= names
    assert not {name for name in names if name.endswith((".so", ".c", ".pyc")) or name.startswith("tests")}
