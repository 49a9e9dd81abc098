"""The test in five languages of docs/testing.md, in Go and in Rust."""

from __future__ import annotations

import pathlib
import shutil

from compat_tests.kit.testing_page import served, tell
from tools import environment

HERE = pathlib.Path(__file__).parent


def test_the_test_in_go_passes(tmp_path: pathlib.Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    with served() as broker:
        (tmp_path / "order_test.go").write_text(broker.code("go"))
        tell(["go", "test", "./..."], tmp_path)
        broker.check()


def test_the_test_in_rust_passes(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "rust"
    shutil.copytree(HERE / "rust", package)
    (package / "tests").mkdir()
    with served() as broker:
        (package / "tests" / "order.rs").write_text(broker.code("rust"))
        target = str(environment.rust_target(HERE / "rust"))
        tell(["cargo", "test", "--quiet", "--locked", "--target-dir", target, "--test", "order"], package)
        broker.check()
