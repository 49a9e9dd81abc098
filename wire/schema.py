"""The declaration of a message: one class for all of its versions.

    class FetchTopic(Struct):
        topic: str = on_wire(STRING, until=12, ignorable=True)
        topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
        partitions: list[FetchPartition] = on_wire(Array(FetchPartition))

A declaration has only the facts of the protocol; `wire/codec.py` generates code from them. In memory a
message always has every field: after decoding, a field that is not in the version has its default. A
constructor takes keywords alone.
"""

import base64
import binascii
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

ALL = (0, None)
"""For `nullable=`: null is allowed in every version that has the field."""

ZERO_UUID = bytes(16)
"""The id that means "none"."""

Buffer = bytes | bytearray | memoryview
"""The type that decoders read and return; a memoryview has one dimension of unsigned bytes."""

Records = Any
"""A `Buffer` after decoding; an encoder also takes any object with `len()`, which becomes a part of its
own."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A wire type without inner structure; `format` is its `struct` code, None if the width varies."""

    name: str
    format: str | None
    size_min: int
    default: Any


BOOL = Primitive("bool", "?", 1, False)
INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
UINT32 = Primitive("uint32", "I", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
UUID = Primitive("uuid", "16s", 16, ZERO_UUID)
STRING = Primitive("string", None, 2, "")
BYTES = Primitive("bytes", None, 4, b"")
RECORDS = Primitive("records", None, 4, None)


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A list of `item`, which is a primitive or a `Struct` class."""

    item: "Primitive | type[Struct]"


WireType = Primitive | Array | type["Struct"]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class FieldSpec:
    """The facts of one field; `None` as an upper version means "and all later ones"."""

    name: str = ""
    """Given by the struct."""
    type: Any
    since: int
    until: int | None
    nullable: tuple[int, int | None] | None
    tag: int | None
    tag_since: int | None
    ignorable: bool
    hidden: bool
    default: Any
    """The default value; for arrays and structs `list` or a class that makes it."""

    def exists_in(self, version: int) -> bool:
        return _within((self.since, self.until), version)

    def null_allowed_in(self, version: int) -> bool:
        return self.nullable is not None and _within(self.nullable, version)

    def is_tagged_in(self, version: int) -> bool:
        return self.tag is not None and self.tag_since is not None and version >= self.tag_since

    def make_default(self) -> Any:
        return self.default() if isinstance(self.default, type) else self.default


_IMPLIED = object()


def on_wire(
    wire_type: Any,
    *,
    since: int = 0,
    until: int | None = None,
    default: Any = _IMPLIED,
    nullable: tuple[int, int | None] | int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
    ignorable: bool = False,
    hidden: bool = False,
) -> Any:
    """Declare a field: its type, first and last version, and Kafka's `default` and `ignorable`.

    `nullable` is the first version in which null is allowed, or the pair of first and last. A field with a
    `tag` is tagged from `tag_since` on, by default `since`. An absent tagged struct is None in memory, so
    that a response needs no empty structs. An ignorable field may be set in versions that do not have it and
    is left out there; any other field is refused. A hidden one may be a secret: it is in no repr.
    """
    return FieldSpec(
        type=wire_type,
        since=since,
        until=until,
        nullable=(nullable, None) if isinstance(nullable, int) else nullable,
        tag=tag,
        tag_since=since if tag is not None and tag_since is None else tag_since,
        ignorable=ignorable,
        hidden=hidden,
        default=_implied_default(wire_type, tag) if default is _IMPLIED else default,
    )


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The class of all declarations: takes their fields, in wire order.

    A struct is a dataclass for everybody who asks (`replace`, `asdict`, mypy). Its constructor is written
    when the first object is made: `dataclass` takes 0.2 ms a class, and a start declares hundreds of them.
    """

    _fields: tuple[FieldSpec, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **arguments: Any
    ) -> "StructType":
        own = {field: spec for field, spec in namespace.items() if isinstance(spec, FieldSpec)}
        if own and any(getattr(base, "_fields", None) for base in bases):
            raise TypeError(f"{name} adds fields to a struct that has some: the wire knows no inheritance")
        for field, spec in own.items():
            del namespace[field]
            spec.name = field
        namespace["__slots__"] = tuple(own)
        if own:
            namespace["_fields"] = tuple(own.values())
            namespace["__init__"] = _construct_first
            namespace["__dataclass_fields__"] = _FIELDS
        return super().__new__(cls, name, bases, namespace, **arguments)


def _construct_first(self: Any, **values: Any) -> None:
    struct: Any = type(self)
    struct.__init__ = _constructor(struct)
    struct.__init__(self, **values)


_NEW = object()
"""In place of an argument: a default of its own for each object."""


def _constructor(struct: Any) -> Any:
    """The function that `dataclass` would write, in a fifth of the time."""
    names: dict[str, Any] = {"NEW": _NEW}
    arguments, lines = ["self", "*"], []
    for number, spec in enumerate(struct._fields):
        name, default = spec.name, f"default_{number}"
        names[default] = spec.default
        # A class makes a new default each time: list for arrays, the struct's class for structs.
        is_made = isinstance(spec.default, type)
        arguments.append(f"{name}=NEW" if is_made else f"{name}={default}")
        lines.append(
            f" self.{name}={default}() if {name} is NEW else {name}" if is_made else f" self.{name}={name}"
        )
    exec("\n".join([f"def __init__({','.join(arguments)}):", *lines]), names)
    made = names["__init__"]
    made.__qualname__ = f"{struct.__qualname__}.__init__"
    return made


class _Fields:
    """In place of `__dataclass_fields__` until somebody asks for it."""

    def __get__(self, struct: object, owner: Any) -> Any:
        fields = []
        for spec in owner._fields:
            made = "default_factory" if isinstance(spec.default, type) else "default"
            field: Any = dataclasses.field(**{made: spec.default}, repr=not spec.hidden)
            fields.append((spec.name, Any, field))
        # Of the class that this makes only the fields are of use: no function is compiled.
        complete: Any = dataclasses.make_dataclass(
            owner.__name__, fields, init=False, eq=False, repr=False, kw_only=True
        )
        owner.__dataclass_fields__ = complete.__dataclass_fields__
        return owner.__dataclass_fields__


_FIELDS = _Fields()


class Struct(metaclass=StructType):
    """Base of all declarations; a struct in a message has the message's versions."""

    _fields = ()
    __dataclass_fields__: ClassVar[dict[str, Any]] = {}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, one.name) == getattr(other, one.name) for one in fields_of(type(self)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [field.name for field in fields_of(type(self)) if not field.hidden]
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({fields})"


class Versioned(Struct):
    """A struct with versions of its own (`versions`), flexible from `flexible_since` on."""

    versions: ClassVar[range]
    flexible_since: ClassVar[int | None]

    def __init_subclass__(
        cls, versions: tuple[int, int] | None = None, flexible_since: int | None = None, **arguments: Any
    ) -> None:
        super().__init_subclass__(**arguments)
        if versions is not None:
            cls.versions = range(versions[0], versions[1] + 1)
            cls.flexible_since = flexible_since

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.flexible_since is not None and version >= cls.flexible_since


class Message(Versioned):
    """A request or a response of the API `api_key`."""

    api_key: ClassVar[int]

    def __init_subclass__(cls, api_key: int | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if api_key is not None:
            cls.api_key = api_key


def fields_of(struct: type[Struct]) -> tuple[FieldSpec, ...]:
    """The declared fields of a struct, in wire order."""
    return struct._fields


S = TypeVar("S", bound=Struct)


def copied_as(kind: type[S], struct: Struct) -> S:
    """A copy of a struct as one of another class, whose fields are among its own, by name."""
    fields = fields_of(kind)
    return kind(**{field.name: _copied_as(field.type, getattr(struct, field.name)) for field in fields})


def _copied_as(wire_type: Any, value: Any) -> Any:
    if value is None or isinstance(wire_type, Primitive):
        return value
    if isinstance(wire_type, Array):
        return [_copied_as(wire_type.item, one) for one in value]
    return copied_as(wire_type, value)


def uuid_to_text(uuid: bytes) -> str:
    """An id as Kafka's text: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's text form; ValueError if the text is invalid."""
    if len(text) != 22 or "+" in text or "/" in text:
        raise ValueError(f"an id has 22 characters of URL-safe base64, not {text!r}")
    try:
        return base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not an id: {error}") from None


def _implied_default(wire_type: Any, tag: int | None) -> Any:
    if isinstance(wire_type, Primitive):
        return wire_type.default
    if isinstance(wire_type, Array):
        return list
    return None if tag is not None else wire_type


def _within(versions: tuple[int, int | None], version: int) -> bool:
    first, last = versions
    return first <= version and (last is None or version <= last)
