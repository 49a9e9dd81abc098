"""Each API is declared once, at the end of its module, and the table leads to it."""

import pathlib
import re
from importlib import import_module

import pytest

from odradek.apis import table
from odradek.apis.access import Need
from odradek.apis.declaration import Api, Forwarding
from odradek.apis.table import MODULES, declared
from odradek.wire.codec import encode_message
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_keys, find, is_forwardable
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.kit.collecting import collected

APIS_FOLDER = pathlib.Path(table.__file__).parent


def test_each_row_of_the_table_leads_to_a_declaration_of_its_key():
    for key in MODULES:
        api = declared(key)
        assert (api.request, api.response) == find(key), key
        assert all(isinstance(need, Need) for need in api.needs), key


def test_each_declaration_has_a_row():
    for name in sorted(set(MODULES.values())):
        module = import_module(f"odradek.apis.{name}")
        apis = module.APIS if hasattr(module, "APIS") else (module.API,)
        rows = sorted(key for key, in_module in MODULES.items() if in_module == name)
        assert sorted(api.request.api_key for api in apis) == rows, name


def test_each_module_that_ends_with_a_declaration_is_in_the_table():
    declaring = {
        path.stem for path in APIS_FOLDER.glob("*.py") if re.search(r"^APIS? = ", path.read_text(), re.M)
    }
    assert declaring == set(MODULES.values())


def test_a_key_has_one_row():
    parts = (table.RECORDS, table.GROUPS, table.TRANSACTIONS, table.ADMINISTRATION, table.SELDOM)
    assert sum(map(len, parts)) == len(MODULES)


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
