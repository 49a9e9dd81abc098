"""The types of the values of options: what mypy knows of them, and the one way to read them."""

import ast
import pathlib
from types import UnionType
from typing import get_args

import pytest

from odradek.config.broker_config import BrokerConfig, load
from odradek.config.live import LiveConfig
from odradek.config.options import BROKER_OPTIONS, TOPIC_OPTIONS
from odradek.config.roles import Role
from odradek.config.secret import Secret
from tests.kit.collecting import collected
from tools.option_values import stub

PATH = pathlib.Path(__file__).parents[2] / "config/option_values.pyi"


def types_of(text):
    """Name -> option -> type, of a file of TypedDicts."""
    return {
        ast.literal_eval(node.value.args[0]): {
            ast.literal_eval(name): eval(ast.unparse(kind), {"Secret": Secret})
            for name, kind in zip(node.value.args[1].keys, node.value.args[1].values, strict=True)
        }
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
    }


def has_type(value, kind):
    kinds = get_args(kind) if isinstance(kind, UnionType) else [kind]
    return type(value) in [tuple if one == tuple[str, ...] else one for one in kinds]


def test_the_types_are_those_of_the_declared_options():
    assert PATH.read_text() == stub(), "run: python -m tools.option_values > config/option_values.pyi"


def test_every_option_has_a_type_and_its_default_is_of_it():
    types = types_of(PATH.read_text())
    broker, topic = types["BrokerValues"], types["TopicValues"]
    assert (list(broker), list(topic)) == (list(BROKER_OPTIONS), list(TOPIC_OPTIONS))
    alone, in_cluster = load().values, BROKER_OPTIONS.of_role(Role.BROKER).defaults
    with collected() as failures:
        for values, known in ((alone, broker), (in_cluster, broker), (load().topic_defaults, topic)):
            assert values.keys() == known.keys()
            for name, kind in known.items():
                with failures.of(name):
                    assert has_type(values[name], kind)


def test_a_value_has_the_type_that_is_said_of_its_kind():
    texts = {
        "node.id": "3",
        "log.retention.ms": "5",
        "auto.create.topics.enable": "false",
        "log.cleaner.io.buffer.load.factor": "1",
        "process.roles": "broker",
        "broker.rack": "r",
        "delegation.token.secret.key": "hidden",
        "offsets.topic.num.partitions": "4",
    }
    values = load(sets=[f"{name}={text}" for name, text in texts.items()]).values
    types = types_of(PATH.read_text())["BrokerValues"]
    assert all(has_type(values[name], types[name]) for name in texts)
    assert type(values["delegation.token.secret.key"]) is Secret


DECLARED = {"listeners", "node_id", "super_users"}
"""Attributes that are made from the options of the same name, and from others."""


@pytest.mark.parametrize("made", [load(), LiveConfig(load(), dict)], ids=lambda one: type(one).__name__)
def test_an_option_is_read_from_the_values_alone(made):
    assert not hasattr(made, "__getitem__"), 'write one.values["log.retention.ms"]'
    assert not hasattr(type(made), "__getattr__")
    named = {name.replace(".", "_") for name in BROKER_OPTIONS}
    assert named & {*dir(made), *BrokerConfig.__annotations__} <= DECLARED
    assert made.values["log.retention.hours"] == 168
