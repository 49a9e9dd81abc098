"""Changes of `config.toml`, the file of profiles that `profiles.py` reads.

    change_profile(path, "live", {"bootstrap.servers": "kafka.example:9093", "sasl.username": None})

The lines of a file that nobody changes stay as they are, with their comments. Values are written as texts. A
file that cannot be changed line by line (with an array of tables, or a value over several lines) is written
anew, without its comments. It is readable by its owner alone, and is replaced in one step.
"""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from odradek.client.client_error import ClientError
from odradek.client.profiles import Profiles, profiles_of, read_profiles
from odradek.config.os_reason import reason_of

_ABOUT = "# Connections to Kafka clusters, for the command line of Odradek.\n"
Content = dict[str, Any]
"""`profile` (the default, or missing) and `profiles`: options by name of the profile."""


def change_profile(path: str, profile: str, changes: Mapping[str, str | None]) -> None:
    """Sets options of a profile, which is made if it is missing, or takes them out (None). ClientError for a
    file that cannot be read or written."""
    content, lines = _read(path)
    options = content["profiles"].setdefault(profile, {})
    for name, value in changes.items():
        options.pop(name, None)
        if value is not None:
            options[name] = value
    section = _section(lines, profile)
    start, end = section or (len(lines), len(lines))
    kept = [line for line in lines[start:end] if not _sets(line, changes)]
    added = [f"{_text(name)} = {_text(value)}\n" for name, value in changes.items() if value is not None]
    if section is None:
        added = [*(["\n"] if lines else []), f"[profiles.{_key(profile)}]\n", *added]
    at = len(kept)
    while at and not kept[at - 1].strip():
        at -= 1
    _replace(path, content, [*lines[:start], *kept[:at], *added, *kept[at:], *lines[end:]])


def remove_profile(path: str, profile: str) -> None:
    """Takes a profile out; it is the default no more. ClientError if it cannot be done."""
    content, lines = _read(path)
    content["profiles"].pop(profile, None)
    section = _section(lines, profile)
    if section is not None:
        del lines[section[0] - 1 : section[1]]
    while lines and not lines[-1].strip():
        del lines[-1]
    if content["profile"] == profile:
        content["profile"] = None
        lines = [line for line in lines if not _sets(line, {"profile": None})]
    _replace(path, content, lines)


def change_default(path: str, profile: str) -> None:
    """Makes a profile the one that is used without a name. ClientError if it cannot be done."""
    content, lines = _read(path)
    content["profile"] = profile
    line = f"profile = {_text(profile)}\n"
    first_table = next((at for at, one in enumerate(lines) if one.lstrip().startswith("[")), len(lines))
    head = lines[:first_table]
    places = [at for at, one in enumerate(head) if _sets(one, {"profile": None})]
    if places:
        head[places[0]] = line
    else:
        comments = next((at for at, one in enumerate(head) if not one.startswith("#")), len(head))
        head.insert(comments, line)
    _replace(path, content, [*head, *lines[first_table:]])


def written(default: str | None, profiles: Mapping[str, Mapping[str, str]]) -> str:
    """The whole file."""
    parts = [_ABOUT]
    if default is not None:
        parts.append(f"profile = {_text(default)}\n")
    for name, options in profiles.items():
        parts.append(f"\n[profiles.{_key(name)}]\n")
        parts += [f"{_text(option)} = {_text(value)}\n" for option, value in options.items()]
    return "".join(parts)


# Lines ------------------------------------------------------------------------------------------------


def _section(lines: list[str], profile: str) -> tuple[int, int] | None:
    """From the line after `[profiles.NAME]` to the next table."""
    heads = [at for at, line in enumerate(lines) if line.lstrip().startswith("[")]
    for number, at in enumerate(heads):
        if _parsed(lines[at]) == {"profiles": {profile: {}}}:
            return at + 1, heads[number + 1] if number + 1 < len(heads) else len(lines)
    return None


def _sets(line: str, names: Mapping[str, str | None]) -> bool:
    """Whether the line sets one of the options; dots may be TOML's."""
    found: Any = _parsed(line)
    name = ""
    while isinstance(found, dict) and len(found) == 1:
        ((key, found),) = found.items()
        name += f".{key}" if name else key
    return bool(name) and name in names


def _parsed(line: str) -> Content | None:
    import tomllib

    try:
        return tomllib.loads(line)
    except ValueError:
        return None


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else _text(name)


def _text(value: str) -> str:
    """A basic string of TOML."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(one) or _printed(one) for one in escaped) + '"'


def _printed(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x20 or ord(character) == 0x7F else character


# The file ---------------------------------------------------------------------------------------------


def _read(path: str) -> tuple[Content, list[str]]:
    content = _content(read_profiles(path))
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        lines = [_ABOUT]
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}") from None
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return content, lines


def _replace(path: str, content: Content, lines: list[str]) -> None:
    text = "".join(lines)
    if not _says(text, content):
        text = written(content["profile"], content["profiles"])
    # A link, as people have it who keep their configuration elsewhere, stays one.
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        # Made with the mode 0600.
        number, temporary = tempfile.mkstemp(dir=directory, prefix=".config-")
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except UnicodeEncodeError:
        raise ClientError(f"{path} cannot be written: a name or a value is not text") from None
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {reason_of(error)}") from None


def _says(text: str, content: Content) -> bool:
    """Whether the text, read again, is the content."""
    parsed = _parsed(text)
    try:
        found = None if parsed is None else profiles_of("", parsed)
    except ClientError:
        return False
    return found is not None and _content(found) == content


def _content(found: Profiles) -> Content:
    by_name = {name: dict(profile.options) for name, profile in found.by_name.items()}
    return {"profile": found.default, "profiles": by_name}
