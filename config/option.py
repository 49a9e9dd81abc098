"""One option: its type, default, bounds and standing, and the parsing and formatting of its text.

The syntax of values is Kafka's (ConfigDef): surrounding blanks are ignored, whole numbers are decimal and
must fit their type, other numbers have the syntax of Java's `Double.parseDouble`, booleans are true or false
in any case, lists are separated by commas. `parse` refuses with a ValueError; its text is one sentence with
the option's name.
"""

import re
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from odradek.config.roles import Role
from odradek.config.secret import Secret

# Kinds, by their numbers in DescribeConfigs responses (Kafka: DescribeConfigsResponse.ConfigType).
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
KIND_NAMES = {
    BOOLEAN: "boolean",
    STRING: "string",
    INT: "int",
    SHORT: "short",
    LONG: "long",
    DOUBLE: "double",
    LIST: "list",
    CLASS: "class",
    PASSWORD: "password",
}

# Standings: the effect of an option here.
HONOURED = "honoured"
"""Has the same effect as in Kafka."""
IN_CLUSTER = "in a cluster"
"""Honoured by a broker of a cluster, accepted without effect by a node alone."""
OF_CLUSTER = "in a cluster and at its controllers"
"""Honoured by all nodes of a cluster, accepted without effect by a node alone."""
WITH_METADATA = "with the metadata log"
"""Honoured by a controller and by a node alone, accepted without effect by a broker of a cluster."""
AT_CONTROLLER = "at a controller"
"""Honoured by a controller, accepted without effect by all other nodes."""
ACCEPTED = "accepted"
"""Not used here, and no client relies on its effect: accepted, and logged as without effect."""
REFUSED = "refused"
"""Refused if it differs from its default: its effect is not built, and users would rely on it (policies
in Java classes, tiered storage)."""

# Dynamic scopes: whether AlterConfigs may change it while the broker runs.
READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

INT_MAX = 2**31 - 1
ARRAY_MAX = INT_MAX - 8
"""The longest array of a Java virtual machine."""
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

_WIDTHS = {SHORT: 16, INT: 32, LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")
# The grammar of Java's Double.valueOf, without NaN, which no option can have.
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|[+-]?Infinity")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_COMMA = re.compile(r"\s*,\s*")


@dataclass(slots=True, eq=False)
class Option:
    """An option of brokers, topics or groups. Declared in `option_list.py`, never changed afterwards."""

    name: str
    standing: str
    kind: int
    default: Any
    """Kafka's default: a Python value, the text of a list, or None."""
    doc: str
    here: Any = None
    """Odradek's default, if it differs from Kafka's."""
    alone: Any = None
    """The default of a node alone and of workers, if Kafka's needs several nodes."""
    low: float | None = None
    high: float | None = None
    never: tuple[int, ...] = ()
    """Invalid values within the bounds."""
    choices: tuple[str, ...] = ()
    any_case: bool = False
    """Whether `choices` ignore case."""
    shape: tuple[str, str] | None = None
    """A regular expression for a list's text without blanks around its commas, and its description."""
    distinct: bool = False
    """Whether a list that names an item twice is refused. In others it counts once."""
    dynamic: str = READ_ONLY
    synonyms: tuple[str, ...] = ()
    """Broker options that give a topic's or group's option its default, the strongest first."""
    bounds: tuple[str | None, str | None] = (None, None)
    """Broker options with the lower and upper bound of a group's own value."""
    internal: bool = False
    """For tests of Kafka: accepted, but not in DescribeConfigs."""
    unlisted: bool = False
    """Set only at run time, as in Kafka (`DynamicConfig.Broker`); described only if it is set."""

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown or logged."""
        return self.kind == PASSWORD

    @property
    def has_own_default(self) -> bool:
        """Whether the default is not Kafka's."""
        return self.here is not None or self.alone is not None

    @property
    def default_value(self) -> Any:
        """The value without a setting, as from `parse`."""
        value = next((one for one in (self.alone, self.here) if one is not None), self.default)
        if self.kind == LIST and value is not None:
            return _split(value)
        return value

    @property
    def default_text(self) -> str | None:
        """The default as in DescribeConfigs."""
        return self.text(self.default_value)

    def of_role(self, role: Role) -> "Option":
        """The option for a node of this role."""
        if role is Role.ALONE:
            return self
        own = AT_CONTROLLER if role is Role.CONTROLLER else IN_CLUSTER
        is_honoured = self.standing in (own, OF_CLUSTER)
        standing = HONOURED if is_honoured else self.standing
        if self.standing is WITH_METADATA:
            standing = ACCEPTED if role is Role.BROKER else HONOURED
        # Workers share one machine: more replicas of what coordinators keep would fail with it, too.
        alone = self.alone if role is Role.WORKER else None
        if standing is self.standing and self.alone == alone:
            return self
        return replace(self, standing=standing, alone=alone)

    def parse(self, text: str) -> Any:
        """The value of a text: bool, int, float, str, or tuple of str. ValueError: the text is no valid
        value."""
        text = text.strip()
        value = self._typed(text)
        self._check(value, text)
        return value

    def text(self, value: Any) -> str | None:
        """A value as Kafka writes it."""
        if value is None:
            return None
        if self.kind == BOOLEAN:
            return "true" if value else "false"
        if self.kind == LIST:
            return ",".join(value)
        if self.kind == DOUBLE:
            return _java_double(value)
        return str(value)

    def refusal_unless_built(self, value: Any) -> str | None:
        """A sentence if the value needs a feature that is not built yet, else None."""
        if self.standing == REFUSED and value != self.default_value:
            default = self.default_text
            keep = "leave it out" if default is None else f"leave it at {default or 'the empty default'}"
            return f"{self.name} is known but not built yet: {keep}."
        return None

    def _typed(self, text: str) -> Any:
        if self.kind == BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise ValueError(f"{self.name} must be true or false, not {text!r}.")
            return lowered == "true"
        if self.kind in _WIDTHS:
            return self._integer(text)
        if self.kind == DOUBLE:
            return self._double(text)
        if self.kind == LIST:
            return _split(text)
        return Secret(text) if self.kind == PASSWORD else text

    def _double(self, text: str) -> float:
        if _DECIMAL.fullmatch(text):
            return float(text.rstrip("fFdD"))
        if not _HEX_DOUBLE.fullmatch(text):
            raise ValueError(f"{self.name} must be a number, not {text[:80]!r}.")
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -inf if text[0] == "-" else inf

    def _integer(self, text: str) -> int:
        # int() alone would also take underscores and digits of other scripts, and text of any length.
        if len(text) > 20 or not _INTEGER.fullmatch(text):
            raise ValueError(f"{self.name} must be a whole number, not {text[:80]!r}.")
        value = int(text)
        bound = 1 << (_WIDTHS[self.kind] - 1)
        if not -bound <= value < bound:
            raise ValueError(f"{self.name} must fit a {KIND_NAMES[self.kind]}, and {text} does not.")
        return value

    def _check(self, value: Any, text: str) -> None:
        if self.choices:
            items = value if self.kind == LIST else (value,)
            for item in items:
                if (item.lower() if self.any_case else item) not in self.choices:
                    raise ValueError(f"{self.name} must be of {', '.join(self.choices)}, not {item!r}.")
        # By the text: duplicates count.
        if self.distinct and len(_COMMA.split(text)) > max(len(value), 1):
            raise ValueError(f"Configuration '{self.name}' values must not be duplicated.")
        if self.shape is not None and not re.fullmatch(self.shape[0], _COMMA.sub(",", text)):
            raise ValueError(f"{self.name} must be {self.shape[1]}, not {text[:80]!r}.")
        # Written so that a NaN is refused as well.
        if self.low is not None and not value >= self.low:
            raise ValueError(f"{self.name} must be at least {self.low}, not {text}.")
        if self.high is not None and not value <= self.high:
            raise ValueError(f"{self.name} must be at most {self.high}, not {text}.")
        if value in self.never:
            raise ValueError(f"{self.name} must not be {text}.")


def _split(text: str) -> tuple[str, ...]:
    """The items of a list, without duplicates."""
    text = text.strip()
    return tuple(dict.fromkeys(_COMMA.split(text))) if text else ()


def _java_double(value: float) -> str:
    """A double as Java's Double.toString writes it: 0.5, 1.0, 1.0E7, 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    if not isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    # The fewest digits that parse to this value, but at least one after the point.
    text = next(text for text in (f"{value:.{digits}e}" for digits in range(1, 18)) if float(text) == value)
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}E{int(exponent)}"
