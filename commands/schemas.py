"""Schemas for Avro and Protobuf: from a schema registry, or from files of a folder.

    schemas = Schemas(Registry("http://registry:8081"), Folder("schemas"))
    schemas.framed(b"\\x00\\x00\\x00\\x00\\x0c...")     # by Confluent's header
    schemas.of_topic("orders", "value")            # by orders.avsc, orders-value.avsc or orders.proto

A registry is asked only where the operator names one. What it sends is bounded in size and in time, kept by
its id, and a registry that does not answer is left alone for a while. What cannot be decoded gives the reason
as a sentence.
"""

import argparse
import base64
import http.client
import json
import pathlib
import re
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from odradek.client.client_error import ClientError
from odradek.client.connecting import properties_of
from odradek.commands.avro_values import NotAvro, parse_avro_schema, read_avro
from odradek.commands.protobuf_schema import NotProto, Types, parse_proto
from odradek.commands.protobuf_values import NotProtobuf, read_index, read_message
from odradek.config.os_reason import reason_of

MAGIC = 0
FRAME_BYTES = 5
"""Confluent's header: a zero byte, and the id of the schema, big-endian."""
SCHEMA_BYTES_MAX = 1 << 20
SCHEMAS_MAX = 500
"""Schemas that are kept; the one that was used longest ago goes."""
REFERENCES_MAX = 50
TIMEOUT_S = 3.0
"""Bound of one request."""
FAILURE_KEPT_S = 30.0
"""How long it is remembered that the registry has no such schema."""
PAUSE_S = 10.0
"""How long a registry that does not answer is not asked."""
WINDOW_S = 10.0
SPENT_S_MAX = 5.0
"""Time that requests may take within a window: a slow registry does not hold up a page of many schemas."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
OPTIONS: Final = ("basic.auth.user.info", "ssl.ca.location")

SCHEMAS_HELP = """\
schemas (--schema-registry, --schemas) for avro, protobuf and auto:
  --schema-registry URL  what begins with Confluent's header (a zero byte, the id of a schema) is
            decoded with that schema: Avro, Protobuf or JSON; --schema-registry-config FILE has
            basic.auth.user.info=USER:PASSWORD and ssl.ca.location=FILE (PEM)
  --schemas DIR  TOPIC.avsc or TOPIC.proto for values, TOPIC-value.* and TOPIC-key.*, too; of a .proto
            file the first message counts, and other files are imported by their path in the folder
  protobuf without a schema has fields by their numbers"""


class NoSchema(Exception):
    """A schema is not to be had, or is none; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Found:
    """A content that a schema has decoded."""

    form: str
    """avro, protobuf or json."""
    value: Any
    note: str
    """Which schema it was."""


Read = Callable[[bytes], Any]
"""Reads a content without its header; NoSchema with the reason if it does not fit."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema that is ready to be used. `read` gets what stands behind the id."""

    form: str
    read: Read


# Registry ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    """State of an id: a schema, or why there is none and until when that is believed."""

    schema: _Schema | None
    reason: str = ""
    until: float = 0.0


class Registry:
    """A schema registry with Confluent's interface; from any thread. `clock` gives seconds that only grow."""

    def __init__(
        self,
        url: str,
        *,
        user_info: str = "",
        ca_path: str = "",
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ClientError for a URL or a file that cannot be."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ClientError(f"--schema-registry {url[:80]} is not http://HOST:PORT or https://HOST:PORT")
        if parts.username is not None:
            raise ClientError(
                "--schema-registry has a user, which all see who can list processes: put "
                "basic.auth.user.info=USER:PASSWORD into a file for --schema-registry-config"
            )
        try:
            self._port = parts.port
            self._tls = ssl.create_default_context(cafile=ca_path or None) if ca_path else None
        except (OSError, ValueError) as error:
            raise ClientError(f"the schema registry cannot be used: {error}") from None
        if parts.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        self._is_tls, self._host, self._path = parts.scheme == "https", parts.hostname, parts.path.rstrip("/")
        self._headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user_info:
            code = base64.b64encode(user_info.encode()).decode()
            self._headers["authorization"] = f"Basic {code}"
        self._timeout_s, self._clock = timeout_s, clock
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._paused_until, self._paused_why = 0.0, ""
        self._spent: list[tuple[float, float]] = []

    def schema(self, number: int) -> _Schema:
        """The schema of an id; NoSchema."""
        with self._lock:
            kept = self._kept.get(number)
            if kept is not None and (kept.schema is not None or self._clock() < kept.until):
                self._kept.move_to_end(number)
                return _of_kept(kept)
        kept = self._asked(number)
        with self._lock:
            self._kept[number] = kept
            while len(self._kept) > SCHEMAS_MAX:
                self._kept.popitem(last=False)
        return _of_kept(kept)

    def _asked(self, number: int) -> _Kept:
        try:
            found = self._get(f"/schemas/ids/{number}")
            return _Kept(_schema_of(found, self._references(found)))
        except NoSchema as error:
            sentence = f"schema {number} is not to be had: {error}"
            return _Kept(None, sentence, self._clock() + FAILURE_KEPT_S)
        except _Away as error:
            return _Kept(None, f"the schema registry {error}", 0.0)

    def _references(self, found: Mapping[str, Any]) -> dict[str, str]:
        """Texts of what a schema refers to, by name; those that others need come first."""
        texts: dict[str, str] = {}
        self._collect(found, texts, {"": ""})
        return texts

    def _collect(self, found: Mapping[str, Any], texts: dict[str, str], seen: dict[str, str]) -> None:
        references = found.get("references") or ()
        for one in references if isinstance(references, list) else ():
            if not isinstance(one, dict) or str(one.get("name")) in seen:
                continue
            if len(seen) > REFERENCES_MAX:
                raise NoSchema(f"it refers to more than {REFERENCES_MAX} others")
            name = str(one.get("name"))
            seen[name] = ""
            subject, version = (
                quote(str(one.get("subject")), safe=""),
                quote(str(one.get("version")), safe=""),
            )
            other = self._get(f"/subjects/{subject}/versions/{version}")
            self._collect(other, texts, seen)
            texts[name] = str(other.get("schema", ""))

    def _get(self, path: str) -> Mapping[str, Any]:
        """The object at a path; NoSchema for what is not there, _Away for a registry that gives nothing."""
        with self._lock:
            began = self._clock()
            if began < self._paused_until:
                raise _Away(self._paused_why)
            self._spent = [(at, spent) for at, spent in self._spent if at > began - WINDOW_S]
            if sum(spent for _, spent in self._spent) > SPENT_S_MAX:
                raise _Away("is slow: load the page again for the rest")
        try:
            status, content = self._response(path)
        except (OSError, http.client.HTTPException) as error:
            why = f"does not answer ({reason_of(error) if isinstance(error, OSError) else error!r})"
            raise self._pause(why) from None
        finally:
            with self._lock:
                self._spent.append((began, self._clock() - began))
        if status == 404:
            raise NoSchema("the registry does not have it")
        if status in (401, 403):
            raise self._pause(f"refuses its user (status {status}): see basic.auth.user.info")
        if status != 200:
            raise self._pause(f"answers with the status {status}")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._pause("does not answer with a JSON object")
        return found

    def _pause(self, why: str) -> "_Away":
        with self._lock:
            self._paused_until, self._paused_why = self._clock() + PAUSE_S, why
        return _Away(why)

    def _response(self, path: str) -> tuple[int, bytes]:
        """Status and body. A redirect is not followed: it would lead where nobody has sent the console."""
        deadline = time.monotonic() + self._timeout_s
        connection: http.client.HTTPConnection
        if self._is_tls:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            # The timer also ends a response that comes drop by drop.
            timer = threading.Timer(max(0.0, deadline - time.monotonic()), _shut, [connection])
            timer.daemon = True
            timer.start()
            try:
                response = connection.getresponse()
                content = response.read(SCHEMA_BYTES_MAX + 1)
            finally:
                timer.cancel()
        except ValueError as error:
            raise http.client.HTTPException(str(error)) from None
        finally:
            connection.close()
        if len(content) > SCHEMA_BYTES_MAX:
            raise NoSchema(f"it is larger than {SCHEMA_BYTES_MAX:,} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("it took too long")
        return response.status, content


class _Away(Exception):
    """The registry gives nothing at all; says why."""


def _shut(connection: http.client.HTTPConnection) -> None:
    found = connection.sock
    if found is not None:
        try:
            found.shutdown(2)
        except OSError:
            pass


def _of_kept(kept: _Kept) -> _Schema:
    if kept.schema is None:
        raise NoSchema(kept.reason)
    return kept.schema


def _schema_of(found: Mapping[str, Any], references: Mapping[str, str]) -> _Schema:
    text, kind = found.get("schema"), found.get("schemaType") or "AVRO"
    if not isinstance(text, str):
        raise NoSchema("the registry gives no text for it")
    if kind == "AVRO":
        return _avro(text, tuple(references.values()))
    if kind == "PROTOBUF":
        return _protobuf(text, references, is_framed=True)
    if kind == "JSON":
        return _Schema("json", _json)
    raise NoSchema(f"its type is {str(kind)[:40]}, which is not known here")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise NoSchema(f"it is not JSON ({error})") from None


def _avro(text: str, references: tuple[str, ...] = ()) -> _Schema:
    try:
        schema = parse_avro_schema(text, references)
    except NotAvro as error:
        raise NoSchema(str(error)) from None

    def read(content: bytes) -> Any:
        try:
            return read_avro(schema, content)
        except NotAvro as error:
            raise NoSchema(f"the content does not fit: {error}") from None

    return _Schema("avro", read)


def _protobuf(text: str, imports: Mapping[str, str], *, is_framed: bool = False) -> _Schema:
    """With `is_framed` the number of the message stands before the content."""
    try:
        types = parse_proto(text, imports)
    except NotProto as error:
        raise NoSchema(f"the .proto file is not understood: {error}") from None

    def read(content: bytes) -> Any:
        try:
            path, position = read_index(content, 0) if is_framed else ([0], 0)
            return read_message(_message_at(types, path), content[position:])
        except NotProtobuf as error:
            raise NoSchema(f"the content does not fit: {error}") from None

    return _Schema("protobuf", read)


def _message_at(types: Types, path: list[int]) -> Any:
    kind = types.at(path)
    if kind is None:
        raise NoSchema(f"it has no message {'.'.join(map(str, path))}")
    return kind


# Folder -----------------------------------------------------------------------------------------------


class Folder:
    """Schema files of topics; a file that was changed is read again."""

    def __init__(self, path: str) -> None:
        """ClientError for what is no folder."""
        self._path = pathlib.Path(path)
        if not self._path.is_dir():
            raise ClientError(f"--schemas {path} is not a folder")
        self._kept: dict[pathlib.Path, tuple[float, list[_Schema]]] = {}

    def find(self, topic: str, part: str) -> tuple[str, list[_Schema]] | None:
        """The name of the file for keys or values of a topic, and its schema without and with Confluent's
        header; None: there is none. NoSchema for a file that is wrong."""
        if not _TOPIC.fullmatch(topic):
            return None
        names = [f"{topic}-{part}", *([topic] if part == "value" else [])]
        for name in names:
            for end in (".avsc", ".proto"):
                path = self._path / (name + end)
                if path.is_file():
                    return path.name, self._schemas(path)
        return None

    def _schemas(self, path: pathlib.Path) -> list[_Schema]:
        try:
            changed = path.stat().st_mtime
            kept = self._kept.get(path)
            if kept is None or kept[0] != changed:
                kept = self._kept[path] = changed, self._parsed(path)
        except OSError as error:
            raise NoSchema(f"{path.name} cannot be read: {reason_of(error)}") from None
        except NoSchema as error:
            raise NoSchema(f"{path.name}: {error}") from None
        return kept[1]

    def _parsed(self, path: pathlib.Path) -> list[_Schema]:
        text = _read(path)
        if path.suffix == ".avsc":
            schema = _avro(text)
            return [schema, schema]
        imports = _Imports(self._path)
        return [_protobuf(text, imports), _protobuf(text, imports, is_framed=True)]


def _read(path: pathlib.Path) -> str:
    content = path.read_bytes()
    if len(content) > SCHEMA_BYTES_MAX:
        raise NoSchema(f"it is larger than {SCHEMA_BYTES_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise NoSchema("it is not UTF-8") from None


class _Imports(dict[str, str]):
    """Files of the folder by their path in it, read when they are asked for."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__()
        self._folder = folder.resolve()

    def get(self, name: str, default: Any = None) -> Any:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder) or not path.is_file():
            return default
        return _read(path)


# Both -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schemas:
    """Where schemas are from: a registry, a folder, both or none."""

    registry: Registry | None = None
    folder: Folder | None = None

    def __bool__(self) -> bool:
        return self.registry is not None or self.folder is not None

    def framed(self, content: bytes) -> Found | None:
        """By Confluent's header; None: it has none, or there is no registry. NoSchema."""
        if self.registry is None or len(content) < FRAME_BYTES or content[0] != MAGIC:
            return None
        number = int.from_bytes(content[1:FRAME_BYTES], "big")
        schema = self.registry.schema(number)
        try:
            value = schema.read(content[FRAME_BYTES:])
        except NoSchema as error:
            raise NoSchema(f"schema {number}: {error}") from None
        return Found(schema.form, value, f"schema {number}")

    def of_topic(self, topic: str, part: str, content: bytes) -> Found | None:
        """By the file of the topic, for "key" or "value"; None: there is none. NoSchema."""
        found = None if self.folder is None else self.folder.find(topic, part)
        if found is None:
            return None
        name, (plain, framed) = found
        try:
            return Found(plain.form, plain.read(content), name)
        except NoSchema as error:
            reason = error
        if len(content) >= FRAME_BYTES and content[0] == MAGIC:
            try:
                return Found(framed.form, framed.read(content[FRAME_BYTES:]), name)
            except NoSchema:
                pass
        raise NoSchema(f"{name}: {reason}")


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say where schemas are from."""
    group = parser.add_argument_group("schemas")
    group.add_argument(
        "--schema-registry", metavar="URL", help="decode what has Confluent's header with its schemas"
    )
    group.add_argument(
        "--schema-registry-config",
        metavar="FILE",
        help=f"properties for it: {', '.join(OPTIONS)}",
    )
    group.add_argument("--schemas", metavar="DIR", help="a folder with TOPIC.avsc, TOPIC-key.proto, ...")


def schemas_of(options: argparse.Namespace) -> Schemas:
    """Sources of schemas that the options name; ClientError."""
    named: Mapping[str, str] = {}
    if options.schema_registry_config is not None:
        if options.schema_registry is None:
            raise ClientError("--schema-registry-config is for --schema-registry")
        named = properties_of(options.schema_registry_config)
        if unknown := sorted(named.keys() - {*OPTIONS}):
            raise ClientError(
                f"{options.schema_registry_config} has {unknown[0]}, which is none of {', '.join(OPTIONS)}"
            )
    registry = None
    if options.schema_registry is not None:
        registry = Registry(
            options.schema_registry,
            user_info=named.get("basic.auth.user.info", ""),
            ca_path=named.get("ssl.ca.location", ""),
        )
    return Schemas(registry, None if options.schemas is None else Folder(options.schemas))
