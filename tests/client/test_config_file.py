"""Changes of the configuration file: what they say is what is read again; all else stays as it is."""

import os
import pathlib
import stat
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.client_error import ClientError
from odradek.client.config_file import change_default, change_profile, remove_profile, written
from odradek.client.profiles import read_profiles

BY_HAND = """\
# Clusters of the shop.
profile = "test"   # the harmless one

[profiles.test]
"bootstrap.servers" = "localhost:9092"

[profiles.live]          # take care
bootstrap.servers = "kafka.example:9093"   # all three
security.protocol = 'SASL_SSL'
request.timeout.ms = 5000

[profiles."old one"]
x = "1"
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(BY_HAND)
    return file


def content(path):
    found = read_profiles(str(path))
    return found.default, {name: dict(one.options) for name, one in found.by_name.items()}


def test_a_changed_line_is_the_only_change(path):
    change_profile(str(path), "live", {"request.timeout.ms": "6000", "bootstrap.servers": "other:1"})
    assert path.read_text() == BY_HAND.replace(
        'bootstrap.servers = "kafka.example:9093"   # all three\n', ""
    ).replace(
        "request.timeout.ms = 5000\n", '"request.timeout.ms" = "6000"\n"bootstrap.servers" = "other:1"\n'
    )
    change_profile(str(path), "live", {"security.protocol": None})
    assert content(path)[1]["live"] == {"request.timeout.ms": "6000", "bootstrap.servers": "other:1"}
    assert "# take care" in path.read_text()


def test_a_new_profile_stands_at_the_end(path):
    change_profile(str(path), "a.b", {"x": "1"})
    assert path.read_text() == BY_HAND + '\n[profiles."a.b"]\n"x" = "1"\n'


def test_a_profile_is_removed_and_is_the_default_no_more(path):
    remove_profile(str(path), "test")
    assert path.read_text() == BY_HAND.replace('profile = "test"   # the harmless one\n', "").replace(
        '[profiles.test]\n"bootstrap.servers" = "localhost:9092"\n\n', ""
    )
    remove_profile(str(path), "old one")
    assert list(content(path)[1]) == ["live"]


def test_the_default_is_changed_in_its_place(path):
    change_default(str(path), "live")
    assert path.read_text() == BY_HAND.replace('profile = "test"   # the harmless one', 'profile = "live"')
    path.write_text("# first\n\n[profiles.x]\n")
    change_default(str(path), "x")
    assert path.read_text() == '# first\nprofile = "x"\n\n[profiles.x]\n'
    path.write_text("[profiles.x]")
    change_default(str(path), "x")
    assert content(path) == ("x", {"x": {}})


def test_an_empty_profile_at_the_end_of_the_file_is_filled(path):
    path.write_text("# mine\n[profiles.x]")
    change_profile(str(path), "x", {"a": "b"})
    assert path.read_text() == '# mine\n[profiles.x]\n"a" = "b"\n'


@pytest.mark.parametrize(
    "text",
    [
        'profiles.x.a = "1"\nprofiles.y.b = "2"\n',
        '[profiles]\nx = {a = "1"}\ny = {b = "2"}\n',
        '[profiles.x]\na = """\n1"""\n[profiles.y]\nb = "2"\n',
        '[profiles.y]\nb = "2"\n[profiles.x]\na.b = 5\n[profiles.x.a.c]\nd = "3"\n',
    ],
)
def test_a_file_in_another_form_is_written_anew(path, text):
    path.write_text(text)
    default, profiles = content(path)
    change_profile(str(path), "x", {"a": "3", "c": "4", "a.b": None})
    expected = {**profiles, "x": {**profiles["x"], "a": "3", "c": "4"}}
    expected["x"].pop("a.b", None)
    assert content(path) == (default, expected)
    remove_profile(str(path), "x")
    assert content(path) == (default, {"y": {"b": "2"}})


def test_only_the_owner_reads_it_and_a_link_stays_one(path, tmp_path):
    path.chmod(0o644)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    change_profile(str(link), "test", {"sasl.password": "secret"})
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "link.toml"]
    new = tmp_path / "a" / "b" / "config.toml"
    change_profile(str(new), "x", {"y": "z"})
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(new.parent.stat().st_mode) == 0o700


def test_what_cannot_be_written_is_one_sentence_and_leaves_the_file(path, tmp_path):
    with pytest.raises(ClientError, match=r"config.toml cannot be written: a name or a value is not text"):
        change_profile(str(path), "x", {"a": "\udcff"})
    assert path.read_text() == BY_HAND
    assert os.listdir(tmp_path) == ["config.toml"]
    with pytest.raises(ClientError, match=r"cannot be written: "):
        change_profile("/proc/no/such/config.toml", "x", {"a": "b"})


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
OPTIONS = st.dictionaries(st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3})?", fullmatch=True), NAMES, max_size=4)


@given(st.dictionaries(NAMES, OPTIONS, max_size=3), NAMES, OPTIONS, OPTIONS)
def test_whatever_the_names_what_is_written_is_read(profiles, name, changes, more):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "config.toml"
        path.write_bytes(written(None, profiles).encode())
        assert content(path) == (None, profiles)
        change_profile(str(path), name, changes)
        profiles.setdefault(name, {}).update(changes)
        assert content(path) == (None, profiles)
        change_profile(str(path), name, {**dict.fromkeys(changes), **more})
        profiles[name] = {key: value for key, value in profiles[name].items() if key not in changes} | more
        change_default(str(path), name)
        assert content(path) == (name, profiles)
        remove_profile(str(path), name)
        del profiles[name]
        assert content(path) == (None, profiles)
