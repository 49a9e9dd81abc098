"""The language of `.proto` files, as far as decoding needs it: messages, fields, enums, imports.

    types = parse_proto(text, imports={"common/id.proto": other_text})
    types.messages[0].name                   # those of the file, in order; nested ones are in `.nested`
    types.message("shop.Order")

Options, services, extensions and reserved numbers are passed over. Source: the specifications of the language
(protobuf.dev), versions 2, 3 and editions.

Google's package `protobuf`, which tests compare with, reads no `.proto` files, which is what registries give;
the compiler for them (grpcio-tools) takes 38 MB. Nor does it read a message without a schema. Its decoder
alone would replace the smaller part of this and of `protobuf_values`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

TOKENS_MAX = 200_000
DEPTH_MAX = 64
FILES_MAX = 100
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>\.?[A-Za-z_][\w.]*)|(?P<number>[0-9][\w.]*(?:[eE][+-]\d+)?)|(?P<sign>[{}()\[\]<>=;,:+\-./])""",
    re.DOTALL,
)
SCALARS = frozenset(
    {
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    }
)
_NUMBER_MAX = 2**29 - 1


class NotProto(Exception):
    """The text is no `.proto` file; says why."""


@dataclass(slots=True)
class Field:
    """A field of a message. `kind` is a scalar type, or "message", "enum", "group" or "map"."""

    name: str
    number: int
    kind: str
    is_repeated: bool = False
    type_name: str = ""
    """Name in the file, of a message, enum or group."""
    message: "MessageType | None" = None
    enum: "EnumType | None" = None
    key: str = ""
    """Scalar type of the key of a map, whose value is the field `value`."""
    value: "Field | None" = None


@dataclass(slots=True)
class EnumType:
    """Names by number; of two with one number the first."""

    name: str
    names: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class MessageType:
    """A message; `name` is the full one."""

    name: str
    fields: dict[int, Field] = field(default_factory=dict)
    nested: list["MessageType"] = field(default_factory=list)
    """Messages that are declared in it, in the order of the file."""


@dataclass(slots=True)
class Types:
    """The types of a file, and of those that it imports."""

    messages: list[MessageType] = field(default_factory=list)
    """Messages of the file itself, in order."""
    by_name: dict[str, MessageType | EnumType] = field(default_factory=dict)

    def message(self, name: str) -> MessageType | None:
        """By its full name."""
        found = self.by_name.get(name)
        return found if isinstance(found, MessageType) else None

    def at(self, path: list[int]) -> MessageType | None:
        """By the numbers of the messages that are around it, and its own, as in Confluent's header."""
        inside, found = self.messages, None
        for number in path:
            if not 0 <= number < len(inside):
                return None
            found = inside[number]
            inside = found.nested
        return found


def parse_proto(text: str, imports: Mapping[str, str] | None = None) -> Types:
    """The types of a file; `imports` are the texts of others by the names under which they are imported. An
    import that is not there is passed over; NotProto when a type of it is used."""
    types, waiting = Types(), [(text, True)]
    unresolved: list[tuple[Field, str]] = []
    known: set[str] = set()
    for content, is_main in waiting:
        parser = _Parser(content, types, unresolved)
        parser.file(is_main)
        for name in parser.imports:
            found = WELL_KNOWN.get(name) or (None if imports is None else imports.get(name))
            if name not in known and found is not None:
                known.add(name)
                waiting.append((found, False))
        if len(waiting) > FILES_MAX:
            raise NotProto(f"it imports more than {FILES_MAX} files")
    for one, scope in unresolved:
        _resolve(types, one, scope)
    return types


def _resolve(types: Types, one: Field, scope: str) -> None:
    """The innermost scope that knows the name counts."""
    wanted = one.type_name
    if wanted.startswith("."):
        candidates = [wanted[1:]]
    else:
        parts = scope.split(".") if scope else []
        candidates = [".".join([*parts[:length], wanted]) for length in range(len(parts), -1, -1)]
    found = next((types.by_name[name] for name in candidates if name in types.by_name), None)
    if isinstance(found, EnumType):
        one.kind, one.enum = "enum", found
    elif isinstance(found, MessageType):
        one.kind, one.message = "message" if one.kind != "group" else "group", found
    else:
        raise NotProto(f"the type {wanted[:80]!r} of the field {one.name} is not declared")


# Tokens -----------------------------------------------------------------------------------------------


def _tokens(text: str) -> Iterator[str]:
    position, count = 0, 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            line = text.count("\n", 0, position) + 1
            raise NotProto(f"line {line} has {text[position : position + 20]!r}, which is not understood")
        position = found.end()
        if found.lastgroup is not None:
            count += 1
            if count > TOKENS_MAX:
                raise NotProto("it is too large")
            yield found[0]


class _Parser:
    """Reads one file into `types`; `unresolved` gets fields with the scope of their type's name."""

    def __init__(self, text: str, types: Types, unresolved: list[tuple[Field, str]]) -> None:
        self._tokens = [*_tokens(text)]
        self._at = 0
        self._types, self._unresolved = types, unresolved
        self._package = ""
        self.imports: list[str] = []

    def file(self, is_main: bool) -> None:
        """All of it; NotProto."""
        messages: list[MessageType] = []
        while self._at < len(self._tokens):
            word = self._next()
            if word == "package":
                self._package = self._next()
                self._take(";")
            elif word == "import":
                name = self._next()
                if name in ("public", "weak", "option"):
                    name = self._next()
                self.imports.append(name[1:-1])
                self._take(";")
            elif word == "message":
                messages.append(self._message(self._package, 0))
            elif word == "enum":
                self._enum(self._package)
            elif word in ("syntax", "edition", "option", "service", "extend"):
                self._pass_statement()
            elif word in ("export", "local"):
                continue
            elif word != ";":
                raise NotProto(f"{word[:40]!r} stands where a declaration is expected")
        if is_main:
            self._types.messages = messages

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise NotProto("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise NotProto(f"{found[:40]!r} stands where {wanted!r} is expected")

    def _pass_statement(self) -> None:
        """To its semicolon, or behind its braces."""
        depth = 0
        while True:
            token = self._next()
            if token in ("{", "[", "("):
                depth += 1
            elif token in ("}", "]", ")"):
                depth -= 1
                if depth == 0 and token == "}" and self._peek() != ";":
                    return
            elif token == ";" and depth == 0:
                return

    def _pass_brackets(self) -> None:
        """The options of a field, if there are any."""
        if self._peek() != "[":
            return
        depth = 0
        while True:
            token = self._next()
            depth += (token == "[") - (token == "]")
            if depth == 0:
                return

    # Declarations

    def _message(self, scope: str, depth: int) -> MessageType:
        made = MessageType(_joined(scope, self._next()))
        self._types.by_name[made.name] = made
        self._body(made, depth)
        return made

    def _body(self, made: MessageType, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise NotProto("messages are too deep in each other")
        self._take("{")
        while (word := self._next()) != "}":
            if word == "message":
                made.nested.append(self._message(made.name, depth + 1))
            elif word == "enum":
                self._enum(made.name)
            elif word == "oneof":
                self._oneof(made, depth)
            elif word in ("option", "reserved", "extensions", "extend"):
                self._pass_statement()
            elif word in ("export", "local") and self._peek() in ("message", "enum"):
                continue
            elif word != ";":
                self._field(made, word, depth)

    def _oneof(self, made: MessageType, depth: int) -> None:
        self._next()
        self._take("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._pass_statement()
            elif word != ";":
                self._field(made, word, depth)

    def _field(self, made: MessageType, word: str, depth: int) -> None:
        is_repeated = word == "repeated"
        if word in ("repeated", "optional", "required"):
            word = self._next()
        if word == "map" and self._peek() == "<":
            self._map(made)
            return
        name = self._next()
        self._take("=")
        number = self._number()
        self._pass_brackets()
        if word == "group":
            inner = MessageType(_joined(made.name, name))
            self._types.by_name[inner.name] = inner
            made.nested.append(inner)
            made.fields[number] = Field(name.lower(), number, "group", is_repeated, message=inner)
            self._body(inner, depth + 1)
            return
        self._take(";")
        made.fields[number] = self._typed(name, number, word, is_repeated, made.name)

    def _map(self, made: MessageType) -> None:
        self._take("<")
        key = self._next()
        self._take(",")
        value = self._next()
        self._take(">")
        name = self._next()
        self._take("=")
        number = self._number()
        self._pass_brackets()
        self._take(";")
        # An entry counts among the nested messages of a descriptor, and not in Confluent's header.
        made.fields[number] = Field(
            name, number, "map", key=key, value=self._typed("value", 2, value, False, made.name)
        )

    def _typed(self, name: str, number: int, kind: str, is_repeated: bool, scope: str) -> Field:
        if kind in SCALARS:
            return Field(name, number, kind, is_repeated)
        made = Field(name, number, "", is_repeated, kind)
        self._unresolved.append((made, scope))
        return made

    def _number(self) -> int:
        text = self._next()
        try:
            number = int(text, 8 if re.fullmatch("0[0-7]+", text) else 0)
        except ValueError:
            raise NotProto(f"{text[:40]!r} is not the number of a field") from None
        if not 0 < number <= _NUMBER_MAX:
            raise NotProto(f"no field has the number {number}")
        return number

    def _enum(self, scope: str) -> None:
        made = EnumType(_joined(scope, self._next()))
        self._types.by_name[made.name] = made
        self._take("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved"):
                self._pass_statement()
            elif word != ";":
                self._take("=")
                sign = -1 if self._peek() == "-" else 1
                if sign < 0:
                    self._next()
                text = self._next()
                try:
                    number = sign * int(text, 8 if re.fullmatch("0[0-7]+", text) else 0)
                except ValueError:
                    raise NotProto(f"{text[:40]!r} is not the number of an enum") from None
                made.names.setdefault(number, word)
                self._pass_brackets()
                self._take(";")


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


# Google's types, which every registry takes for granted ---------------------------------------------------

_WRAPPERS = " ".join(
    f"message {kind}Value {{ {scalar} value = 1; }}"
    for kind, scalar in (
        *(("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "uint64")),
        *(("Int32", "int32"), ("UInt32", "uint32"), ("Bool", "bool"), ("String", "string")),
        ("Bytes", "bytes"),
    )
)
WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"package google.protobuf; {text}"
    for name, text in {
        "timestamp": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
        "duration": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
        "empty": "message Empty {}",
        "any": "message Any { string type_url = 1; bytes value = 2; }",
        "field_mask": "message FieldMask { repeated string paths = 1; }",
        "wrappers": _WRAPPERS,
        "struct": "message Struct { map<string, Value> fields = 1; } enum NullValue { NULL_VALUE = 0; } "
        "message Value { oneof kind { NullValue null_value = 1; double number_value = 2; "
        "string string_value = 3; bool bool_value = 4; Struct struct_value = 5; "
        "ListValue list_value = 6; } } message ListValue { repeated Value values = 1; }",
    }.items()
}
