"""Levels of loggers: changed by clients where the broker owns its process."""

import logging
import pathlib
import re

import pytest

from odradek.apis.log_levels import LOGGERS
from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.apis.test_alter_configs import LOGGER, alter, code_of, partly

OWN = "odradek.fetch"
FOLDERS = ("apis", "coordinator", "config", "server", "storage", "wire")


@pytest.fixture(autouse=True)
def levels_come_back():
    loggers = [logging.root, *map(logging.getLogger, LOGGERS)]
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


@pytest.fixture
def owner(make_node):
    """A node whose process is its own."""
    return make_node(changes_log_levels=True)


def described(node, *names):
    resource = DescribeConfigsResource(
        resource_type=LOGGER, resource_name="1", configuration_keys=list(names)
    )
    (result,) = node.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert {one.config_source for one in result.configs} <= {6}
    return {one.name: one.value for one in result.configs}


@pytest.mark.parametrize(
    ("name", "level"), [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)]
)
def test_a_level_is_set_by_kafkas_name(owner, name, level):
    assert code_of(owner, partly(LOGGER, "1", (OWN, SET, name))) == "NONE"
    assert logging.getLogger(OWN).level == level
    assert described(owner, OWN) == {OWN: name}


def test_a_deleted_level_is_that_of_the_logger_above(owner):
    alter(owner, partly(LOGGER, "1", ("odradek", SET, "ERROR"), (OWN, SET, "DEBUG")))
    assert described(owner, OWN, "odradek") == {OWN: "DEBUG", "odradek": "ERROR"}
    alter(owner, partly(LOGGER, "1", (OWN, DELETE, None)))
    assert described(owner, OWN) == {OWN: "ERROR"}
    alter(owner, partly(LOGGER, "1", ("odradek", DELETE, None), ("root", SET, "FATAL")))
    assert described(owner, OWN, "root") == {OWN: "FATAL", "root": "FATAL"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (partly(LOGGER, "1", ("nowhere", SET, "INFO")), "INVALID_CONFIG"),
        (partly(LOGGER, "1", ("nowhere", DELETE, None)), "INVALID_CONFIG"),
        (partly(LOGGER, "1", ("", SET, "INFO")), "INVALID_CONFIG"),
        *(
            (partly(LOGGER, "1", (OWN, SET, level)), "INVALID_CONFIG")
            for level in ("OFF", "ALL", "info", "", "10")
        ),
        (partly(LOGGER, "1", (OWN, SET, None)), "INVALID_REQUEST"),
        (partly(LOGGER, "1", ("root", DELETE, None)), "INVALID_REQUEST"),
        (partly(LOGGER, "1", ("root", APPEND, "INFO")), "INVALID_REQUEST"),
        (partly(LOGGER, "1", ("root", SUBTRACT, "INFO")), "INVALID_REQUEST"),
        (partly(LOGGER, "1", ("root", 9, "INFO")), "INVALID_REQUEST"),
        (partly(LOGGER, "1", (OWN, SET, "INFO"), (OWN, SET, "WARN")), "INVALID_REQUEST"),
        (partly(LOGGER, "2", (OWN, SET, "INFO")), "INVALID_REQUEST"),
        (partly(LOGGER, "", (OWN, SET, "INFO")), "INVALID_REQUEST"),
        (partly(LOGGER, "1"), "NONE"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(owner, resource, code):
    assert code_of(owner, resource) == code


def test_one_bad_level_leaves_all_as_they_were(owner):
    before = logging.getLogger(OWN).level
    resource = partly(LOGGER, "1", (OWN, SET, "TRACE"), ("nowhere", SET, "INFO"))
    assert code_of(owner, resource) == "INVALID_CONFIG"
    assert logging.getLogger(OWN).level == before


def test_a_change_that_is_only_validated_is_none(owner):
    before = logging.getLogger(OWN).level
    assert code_of(owner, partly(LOGGER, "1", (OWN, SET, "TRACE")), validate_only=True) == "NONE"
    assert logging.getLogger(OWN).level == before


def test_a_broker_in_a_program_leaves_its_logging_alone(node):
    before = logging.getLogger(OWN).level
    (answer,) = alter(node, partly(LOGGER, "1", (OWN, SET, "TRACE")))
    assert answer.error_code == 42
    assert "program" in answer.error_message
    assert logging.getLogger(OWN).level == before


def test_every_logger_of_the_broker_is_in_the_list():
    source = pathlib.Path(__file__).parents[2]
    found = set()
    for folder in FOLDERS:
        for path in [*source.joinpath(folder).rglob("*.py"), *source.joinpath(folder).rglob("*.pyx")]:
            found.update(re.findall(r'getLogger\("(odradek[\w.]*)"\)', path.read_text()))
    assert found == set(LOGGERS)
