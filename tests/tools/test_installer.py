"""Who installs: uv, told in its words what pip is told, or pip where uv has no word for it."""

import pathlib
import sys

import pytest

from tools import installer

LISTED = """\
:env:.config-file='/etc/pip.conf'
:env:.index-url='https://packages.example/simple'
download.only-binary=':all:'
global.index-url='https://other.example/simple'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.timeout='9'
install.timeout='60'
"""
WHERE = pathlib.Path("/cache/uv/bin/uv")


def pip_with(listed, status=0):
    """A pip whose configuration is this."""
    return [sys.executable, "-c", f"import sys; print({listed!r}); sys.exit({status})"]


@pytest.fixture
def choose(monkeypatch):
    """The installer, and what was told, for a pip with this configuration."""
    for name in ("UV_DEFAULT_INDEX", installer.CHOICE):
        monkeypatch.delenv(name, raising=False)

    def choose(listed, uv=WHERE, status=0):
        told = []
        return installer.choose(pip_with(listed, status), lambda: uv, told.append), told

    return choose


def test_what_holds_for_an_installation_is_read_from_the_configuration():
    assert installer.settings(LISTED) == {
        "config-file": "/etc/pip.conf",
        "index-url": "https://packages.example/simple",
        "extra-index-url": "https://one.example/simple\nhttps://two.example/simple",
        "timeout": "60",
    }


def test_uv_is_told_what_pip_is_told(choose):
    chosen, told = choose(LISTED)
    assert (type(chosen), told) == (installer.Uv, [])
    assert chosen.program == str(WHERE)
    assert chosen.variables == {
        "UV_SYSTEM_CERTS": "1",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_HTTP_TIMEOUT": "60",
    }


def test_folders_of_wheels_and_certificates_are_handed_over():
    wanted = {"find-links": "/wheels https://wheels.example", "cert": "/ca.pem", "trusted-host": "a b"}
    variables = installer.uv_variables(wanted, {"SSL_CERT_FILE": "/other.pem"})
    assert variables["UV_FIND_LINKS"] == "/wheels,https://wheels.example"
    assert variables["SSL_CERT_FILE"] == "/ca.pem"
    assert variables["UV_INSECURE_HOST"] == "a b"


def test_variables_of_uv_that_are_set_go_before(choose, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example/simple")
    chosen, _ = choose(LISTED)
    assert "UV_DEFAULT_INDEX" not in chosen.variables


def test_what_uv_has_no_word_for_leaves_it_to_pip(choose):
    chosen, told = choose(LISTED + "global.no-index='1'\ninstall.no-binary='lz4'")
    assert isinstance(chosen, installer.Pip)
    assert told == ["pip installs, which takes longer than uv: its configuration has no-binary, no-index"]


def test_where_there_is_no_uv_pip_installs(choose):
    chosen, told = choose("", uv=None)
    assert isinstance(chosen, installer.Pip)
    assert told == [f"pip installs, which takes longer: {installer.UV} is not to be had"]


def test_a_configuration_that_cannot_be_read_is_for_pip(choose):
    chosen, told = choose("", status=1)
    assert isinstance(chosen, installer.Pip)
    assert told == ["pip installs, which takes longer than uv: its configuration cannot be read"]


def test_pip_can_be_chosen(choose, monkeypatch):
    monkeypatch.setenv(installer.CHOICE, "pip")
    chosen, told = choose("")
    assert (type(chosen), told) == (installer.Pip, [])


@pytest.mark.parametrize(("asks_last", "tries"), [(True, "1\n\n"), (False, "\n")])
def test_the_cache_is_asked_before_the_index(tmp_path, monkeypatch, asks_last, tries):
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$UV_OFFLINE" >> {tmp_path}/tries\ntest -z "$UV_OFFLINE"\n')
    uv.chmod(0o755)
    chosen = installer.Uv(uv, {})
    chosen.asks_last = asks_last
    chosen.install(tmp_path, ["pyspark"], {})
    assert (tmp_path / "tries").read_text() == tries
