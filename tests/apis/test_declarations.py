"""Each API is declared once, at the end of its module, and the table leads to it."""

import pathlib
import re
from importlib import import_module

import pytest

from odradek.apis import table
from odradek.apis.access import Need
from odradek.apis.controller.parts import ControllerApi
from odradek.apis.declaration import Api, Forwarding, SharedApi
from odradek.apis.table import LONE_CONTROLLER_MODULES, MODULES, ROWS, declared
from odradek.wire.codec import encode_message
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_keys, find, is_forwardable
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.kit.collecting import collected

APIS_FOLDER = pathlib.Path(table.__file__).parent


def modules():
    """Those that a row names."""
    return sorted({name for row in ROWS.values() for name in row if name})


def declarations(name):
    module = import_module(f"odradek.apis.{name}")
    return module.APIS if hasattr(module, "APIS") else (module.API,)


def test_each_row_of_the_table_leads_to_a_declaration_of_its_key():
    for key, row in ROWS.items():
        for name in filter(None, row):
            api = declared(key, {key: name})
            assert (api.request, api.response) == find(key), key
            assert all(isinstance(need, Need) for need in api.needs), key


def test_each_declaration_has_a_row():
    for name in modules():
        rows = sorted(key for key, row in ROWS.items() if name in row)
        assert sorted(api.request.api_key for api in declarations(name)) == rows, name


def test_each_module_that_ends_with_a_declaration_is_in_the_table():
    declaring = {
        ".".join(path.relative_to(APIS_FOLDER).with_suffix("").parts)
        for path in APIS_FOLDER.rglob("*.py")
        if re.search(r"^APIS? = ", path.read_text(), re.M)
    }
    assert sorted(declaring) == sorted({*modules(), *LONE_CONTROLLER_MODULES.values()})


def test_the_controller_of_a_node_alone_declares_what_it_serves():
    for key, name in LONE_CONTROLLER_MODULES.items():
        api = declared(key, LONE_CONTROLLER_MODULES)
        assert (api.request, api.response) == find(key), (key, name)


def test_a_declaration_is_of_the_roles_that_its_row_says():
    """mypy checks each constructor against the parts of the roles that the class of its declaration says."""
    columns = {Api: ["broker"], SharedApi: ["broker", "controller"], ControllerApi: ["controller"]}
    for name in modules():
        for api in declarations(name):
            row = ROWS[api.request.api_key]
            assert [role for role in row._fields if getattr(row, role) == name] == columns[type(api)], name


def test_a_key_has_one_row():
    parts = (
        table.RECORDS,
        table.GROUPS,
        table.TRANSACTIONS,
        table.ADMINISTRATION,
        table.SELDOM,
        table.AMONG_NODES,
    )
    assert sum(map(len, parts)) == len(ROWS)


def test_no_api_is_declared_without_its_needs():
    with pytest.raises(TypeError, match="needs"):
        Api(HeartbeatRequest, HeartbeatResponse, make=lambda parts: None)


def test_what_is_forwarded_is_told_with_the_versions_of_the_controllers():
    """ApiVersions reads the index of the messages, since it does not import the declarations."""
    forwarded = {key for key in MODULES if declared(key).forwarded is not Forwarding.NONE}
    assert forwarded == {key for key in api_keys() if is_forwardable(key)}


def test_a_refusal_of_each_api_can_be_written_in_each_version():
    with collected() as failures:
        for key in MODULES:
            api = declared(key)
            for version in api.versions:
                with failures.of(f"{api.request.__name__} version {version}"):
                    refusal = api.refuse(api.request(), version, ErrorCode.REQUEST_TIMED_OUT)
                    assert isinstance(refusal, api.response)
                    encode_message(refusal, version)


def test_only_what_shares_a_commit_with_itself_may_overlap():
    overlaps = {key: declared(key).overlaps for key in MODULES if declared(key).overlaps}
    assert overlaps == {0: (find(0)[0],), 8: (find(8)[0],)}
