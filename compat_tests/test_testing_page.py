"""The test in five languages of docs/testing.md: three of them; `compat_tests/polyglot` has Go and Rust."""

from __future__ import annotations

import pathlib

from compat_tests import reference
from compat_tests.kit.testing_page import served, tell
from tools import environment


def test_the_test_in_python_passes() -> None:
    with served() as broker:
        names: dict[str, object] = {}
        exec(compile(broker.code("python"), "docs/testing.md", "exec"), names)
        test = names["test_an_order_survives_a_leader_that_moves"]
        assert callable(test)
        test()
        broker.check()


def test_the_test_in_java_passes(tmp_path: pathlib.Path) -> None:
    with served() as broker:
        (tmp_path / "OrderTest.java").write_text(broker.code("java"))
        jvm = ["-XX:TieredStopAtLevel=1", "-cp", reference.client_class_path()]
        tell(["java", *jvm, "OrderTest.java"], tmp_path)
        broker.check()


def test_the_test_in_node_passes(tmp_path: pathlib.Path) -> None:
    node = environment.node()
    modules = environment.node_modules(environment.CHECKOUT / "compat_tests" / "polyglot" / "node")
    with served() as broker:
        (tmp_path / "order.test.js").write_text(broker.code("js"))
        tell([node.program, "--test", "order.test.js"], tmp_path, NODE_PATH=str(modules))
        broker.check()
