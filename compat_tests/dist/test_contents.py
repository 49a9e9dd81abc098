"""What lies in the files that are published."""

from __future__ import annotations

import email
import pathlib
import tarfile
import tomllib
import zipfile

import pytest

from tools.build_dists import CHECKOUT, Dists, extension_modules

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


@pytest.fixture(params=["compiled", "pure"])
def wheel(request: pytest.FixtureRequest, dists: Dists) -> zipfile.ZipFile:
    with zipfile.ZipFile(getattr(dists, request.param)) as archive:
        yield archive


def test_the_wheels_are_a_stable_abi_one_and_a_pure_one_of_one_version(dists: Dists) -> None:
    assert dists.sdist.name == f"odradek-{VERSION}.tar.gz"
    assert dists.compiled.name.startswith(f"odradek-{VERSION}-cp311-abi3-")
    assert dists.pure.name == f"odradek-{VERSION}-py3-none-any.whl"


def test_a_wheel_has_every_module_of_the_checkout_and_nothing_else_of_python(wheel: zipfile.ZipFile) -> None:
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules_of_checkout()


def test_beside_modules_a_wheel_has_the_type_marker_the_licence_and_its_metadata(
    wheel: zipfile.ZipFile,
) -> None:
    others = {name for name in wheel.namelist() if not name.endswith((".py", ".so"))}
    assert others == {"odradek/py.typed"} | {
        f"{METADATA}/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "top_level.txt", "entry_points.txt", "licenses/LICENSE")
    }


def test_the_compiled_parts_are_in_one_wheel_and_not_in_the_other(dists: Dists) -> None:
    def binaries(path: pathlib.Path) -> set[str]:
        with zipfile.ZipFile(path) as archive:
            return {name for name in archive.namelist() if name.endswith((".so", ".pyd", ".dylib"))}

    assert binaries(dists.compiled) == {f"{name.replace('.', '/')}.abi3.so" for name in extension_modules()}
    assert binaries(dists.pure) == set()


def test_the_command_line_knows_all_compiled_parts() -> None:
    from odradek.server.cli import _COMPILED_PARTS

    assert set(_COMPILED_PARTS) == set(extension_modules())


def test_the_entry_points_are_a_console_script_and_a_pytest_plugin(wheel: zipfile.ZipFile) -> None:
    assert wheel.read(f"{METADATA}/entry_points.txt").decode().split() == [
        "[console_scripts]", "odradek", "=", "odradek.server.cli:main",
        "[pytest11]", "odradek", "=", "odradek.server.pytest_plugin",
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
            if path.suffix in (".py", ".pyx", ".pxd", ".h", ".typed"):
                assert str(path.relative_to(CHECKOUT)) in names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "docs/configuration.md"} <= names
    assert not {name for name in names if name.endswith((".so", ".c", ".pyc")) or name.startswith("tests")}
