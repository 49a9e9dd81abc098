"""The names of topics, groups and profiles for `odradek __complete`, asked of the brokers of its line.

Nothing is said of failures, and all ends within `SECONDS_MAX`: somebody waits with a finger on the key. Names
of brokers are kept for `CACHED_SECONDS`, as people press Tab more than once.
"""

import argparse
import io
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from typing import Any

from odradek.client.admin.asking import all_brokers
from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.connecting import add_connection_arguments, client_settings
from odradek.client.profiles import config_path, read_profiles
from odradek.commands.command import joined
from odradek.wire.messages.list_groups import ListGroupsRequest

SECONDS_MAX = 1.0
CACHED_SECONDS = 5.0
_KEPT_SECONDS = 3600
_VARIABLES = ("ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_PROFILE", "ODRADEK_CONFIG", "XDG_CONFIG_HOME")


class _Late(BaseException):
    """The time is over."""


def known_names(kind: str, words: Sequence[str]) -> list[str]:
    """Names of the kind `topics`, `groups` or `profiles`, with the options of these words; none after a
    failure."""
    try:
        # Nobody asked for usage and warnings here.
        with _deadline(), redirect_stderr(io.StringIO()):
            if kind == "profiles":
                return sorted(read_profiles(config_path(os.environ)).by_name)
            ask = {"topics": _topics, "groups": _groups}[kind]
            return _remembered(kind, _connection_options(words), ask)
    except (ClientError, OSError, ValueError, SystemExit, _Late):
        return []


@contextmanager
def _deadline() -> Iterator[None]:
    def end(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _connection_options(words: Sequence[str]) -> argparse.Namespace:
    """SystemExit for a line whose options cannot be read."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    add_connection_arguments(parser)
    return parser.parse_known_args(joined(words))[0]


def _topics(cluster: Cluster) -> list[str]:
    found, _ = describe_topics(cluster)
    return [topic.name for topic in found]


def _groups(cluster: Cluster) -> list[str]:
    return sorted(
        {
            group.group_id
            for broker in all_brokers(cluster)
            for group in cluster.ask(broker, ListGroupsRequest()).groups
        }
    )


# The cache --------------------------------------------------------------------------------------------


def _remembered(kind: str, options: argparse.Namespace, ask: Callable[[Cluster], list[str]]) -> list[str]:
    path = _cache_path(kind, options)
    found = _read(path)
    if found is None:
        milliseconds = round(SECONDS_MAX * 1000)
        settings = replace(
            client_settings(options, asks=False), patience_ms=milliseconds, request_timeout_ms=milliseconds
        )
        with Cluster(settings) as cluster:
            found = ask(cluster)
        _write(path, found)
    return found


def _cache_path(kind: str, options: argparse.Namespace) -> str:
    """A file for each kind of name and each way to reach brokers."""
    from hashlib import sha256

    variables = [os.environ.get(name) for name in _VARIABLES]
    key = repr((kind, sorted(vars(options).items()), variables))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"names-{sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:20]}"
    return os.path.join(base, "odradek", name)


def _read(path: str) -> list[str] | None:
    """None for what is not there, or is too old."""
    try:
        with open(path, encoding="utf-8") as file:
            if 0 <= time.time() - os.fstat(file.fileno()).st_mtime < CACHED_SECONDS:
                return file.read().splitlines()
    except (OSError, ValueError):
        pass
    return None


def _write(path: str, names: Sequence[str]) -> None:
    """Readable by its owner alone, replaced in one step. What nobody has asked for of late is removed."""
    folder = os.path.dirname(path)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join(name for name in names if name.isprintable()))
        os.replace(temporary, path)
        for one in os.scandir(folder):
            if one.name.startswith("names-") and time.time() - one.stat().st_mtime > _KEPT_SECONDS:
                os.unlink(one.path)
    except (OSError, ValueError):
        pass
