"""Regular expressions that clients send, in the syntax of RE2: matching takes time in proportion to the text.

Python's own `re` tries one way after the other and can be kept busy for hours by a dozen characters. Here an
expression becomes an automaton whose states are made as they are reached and kept; a character of text then
costs one look-up. What an expression may cost altogether is bounded, in size and in work: beyond that it is
refused like one that is not valid.

Known are RE2's literals, classes ([a-z], [[:alpha:]], \\d \\s \\w, \\pL, \\p{Lu}), groups with and without
names and flags (i m s U), alternatives, repetitions up to 1,000, anchors and escapes. Not known, and refused:
scripts (\\p{Greek}), \\C, and what RE2 does not have either (back references, look-around, possessive
repetition).

Source: https://github.com/google/re2/wiki/Syntax; Kafka 4.3 uses RE2/J.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NoReturn

from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["RegularExpression"]

REPETITIONS_MAX = 1_000
PROGRAM_MAX = 20_000
NESTING_MAX = 50
CLASS_PARTS_MAX = 50
"""Ranges and classes in one pair of brackets; single characters as many as there are."""
WORK_MAX = 300_000
"""Instructions that may be looked at while states are made: about a quarter of a second."""

CharacterTest = Callable[[str], bool]


class RegularExpression:
    """A compiled expression. Raises KafkaError INVALID_REGULAR_EXPRESSION with a message for a person."""

    def __init__(self, pattern: str) -> None:
        self._program = _Program(pattern, _Parser(pattern).parse())
        self._states: dict[tuple[frozenset[int], _Side], _State] = {}
        self._start = self._state(frozenset({self._program.start}), _Side.EDGE)
        self._work_left = WORK_MAX

    def matches(self, text: str) -> bool:
        """Whether the whole text is what the expression says. KafkaError if that takes too much work."""
        state = self._start
        for character in text:
            following = state.moves.get(character)
            if following is None:
                following = self._move(state, character)
            if not following.positions:
                return False
            state = following
        if state.accepts is None:
            self._work_left -= len(state.positions)
            state.accepts = self._program.accepts(state.positions, state.before)
        return state.accepts

    def _move(self, state: _State, character: str) -> _State:
        positions, looked_at = self._program.step(state.positions, state.before, character)
        self._work_left -= looked_at
        if self._work_left < 0:
            _refuse(self._program.pattern, "it takes too much work")
        side = _side_of(character) if self._program.has_assertions else _Side.EDGE
        following = state.moves[character] = self._state(positions, side)
        return following

    def _state(self, positions: frozenset[int], before: _Side) -> _State:
        state = self._states.get((positions, before))
        if state is None:
            state = self._states[positions, before] = _State(positions, before)
        return state


def _refuse(pattern: str, reason: str) -> NoReturn:
    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}..."
    raise KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"{shown!r} is not a valid regular expression: {reason}."
    )


# What an expression consists of


class _Side(Enum):
    """What is on one side of a position in the text."""

    EDGE = auto()
    NEWLINE = auto()
    WORD = auto()
    OTHER = auto()


class _Assertion(Enum):
    """What has to hold between two characters."""

    TEXT_BEGINS = auto()
    TEXT_ENDS = auto()
    LINE_BEGINS = auto()
    LINE_ENDS = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()

    def holds(self, before: _Side, after: _Side) -> bool:
        if self is _Assertion.TEXT_BEGINS:
            return before is _Side.EDGE
        if self is _Assertion.TEXT_ENDS:
            return after is _Side.EDGE
        if self is _Assertion.LINE_BEGINS:
            return before in (_Side.EDGE, _Side.NEWLINE)
        if self is _Assertion.LINE_ENDS:
            return after in (_Side.EDGE, _Side.NEWLINE)
        is_boundary = (before is _Side.WORD) != (after is _Side.WORD)
        return is_boundary is (self is _Assertion.WORD_BOUNDARY)


@dataclass(slots=True)
class _Character:
    test: CharacterTest


@dataclass(slots=True)
class _Sequence:
    nodes: list[_Node]


@dataclass(slots=True)
class _Choice:
    nodes: list[_Node]


@dataclass(slots=True)
class _Repeat:
    node: _Node
    low: int
    high: int | None
    """None for no limit."""


_Node = _Character | _Assertion | _Sequence | _Choice | _Repeat


# The automaton


@dataclass(slots=True)
class _State:
    """A set of places in the program, and where each character leads from there as far as is known."""

    positions: frozenset[int]
    before: _Side
    moves: dict[str, _State] = field(default_factory=dict)
    accepts: bool | None = None


class _Program:
    """Instructions by number: a test or an assertion with its successor, or ways to go on; 0 is the end."""

    def __init__(self, pattern: str, node: _Node) -> None:
        self.pattern = pattern
        self.has_assertions = False
        self._tests: dict[int, CharacterTest] = {}
        self._assertions: dict[int, _Assertion] = {}
        self._next: list[tuple[int, ...]] = [()]
        self._compiled_count = 0
        self.start = self._compile(node, 0)

    def _add(self, *following: int) -> int:
        if len(self._next) >= PROGRAM_MAX:
            _refuse(self.pattern, "it is too big")
        self._next.append(following)
        return len(self._next) - 1

    def _compile(self, node: _Node, following: int) -> int:
        """Instructions for the node, then go on at `following`. Returns where they begin."""
        self._compiled_count += 1
        if self._compiled_count > 2 * PROGRAM_MAX:
            # A thousand times nothing, a thousand times.
            _refuse(self.pattern, "it is too big")
        if isinstance(node, _Character):
            position = self._add(following)
            self._tests[position] = node.test
            return position
        if isinstance(node, _Assertion):
            self.has_assertions = True
            position = self._add(following)
            self._assertions[position] = node
            return position
        if isinstance(node, _Sequence):
            for part in reversed(node.nodes):
                following = self._compile(part, following)
            return following
        if isinstance(node, _Choice):
            return self._add(*[self._compile(part, following) for part in node.nodes])
        return self._compile_repeat(node, following)

    def _compile_repeat(self, node: _Repeat, following: int) -> int:
        if node.high is None:
            loop = self._add()
            self._next[loop] = (self._compile(node.node, loop), following)
            following = loop
        else:
            end = following
            for _ in range(node.high - node.low):
                following = self._add(self._compile(node.node, following), end)
        for _ in range(node.low):
            following = self._compile(node.node, following)
        return following

    def step(self, positions: frozenset[int], before: _Side, character: str) -> tuple[frozenset[int], int]:
        """Where a character leads, and how many instructions had to be looked at."""
        reached = self._reach(positions, before, _side_of(character))
        tests, following = self._tests, self._next
        found = {
            following[position][0] for position in reached if position in tests and tests[position](character)
        }
        return frozenset(found), len(reached) + 1

    def accepts(self, positions: frozenset[int], before: _Side) -> bool:
        return 0 in self._reach(positions, before, _Side.EDGE)

    def _reach(self, positions: Iterable[int], before: _Side, after: _Side) -> set[int]:
        """What can be reached without another character."""
        reached: set[int] = set()
        waiting = list(positions)
        while waiting:
            position = waiting.pop()
            if position in reached:
                continue
            reached.add(position)
            assertion = self._assertions.get(position)
            if position not in self._tests and (assertion is None or assertion.holds(before, after)):
                waiting += self._next[position]
        return reached


def _side_of(character: str) -> _Side:
    if character == "\n":
        return _Side.NEWLINE
    return _Side.WORD if _is_word(character) else _Side.OTHER


# Characters


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _is_ascii_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


_PERL_CLASSES: dict[str, CharacterTest] = {"d": _is_ascii_digit, "s": _is_space, "w": _is_word}
_ASCII_CLASSES: dict[str, CharacterTest] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": lambda character: True,
    "blank": lambda character: character in "\t ",
    "cntrl": lambda character: character < " " or character == "\x7f",
    "digit": _is_ascii_digit,
    "graph": lambda character: "!" <= character <= "~",
    "lower": str.islower,
    "print": lambda character: " " <= character <= "~",
    "punct": lambda character: "!" <= character <= "~" and not character.isalnum(),
    "space": lambda character: character in "\t\n\v\f\r ",
    "upper": str.isupper,
    "word": _is_word,
    "xdigit": lambda character: character in "0123456789abcdefABCDEF",
}
_MINOR_CATEGORIES = {
    "C": "cfos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
_CATEGORIES = frozenset(
    major + minor for major, minors in _MINOR_CATEGORIES.items() for minor in ("", *minors)
)
_ESCAPED_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _between(low: str, high: str) -> CharacterTest:
    return lambda character: low <= character <= high


def _any_of(tests: list[CharacterTest]) -> CharacterTest:
    return lambda character: any(test(character) for test in tests)


def _none_of(test: CharacterTest) -> CharacterTest:
    return lambda character: not test(character)


def _in_any_case(test: CharacterTest) -> CharacterTest:
    return lambda character: (
        test(character)
        or any(len(other) == 1 and test(other) for other in (character.lower(), character.upper()))
    )


def _in_ascii(test: CharacterTest) -> CharacterTest:
    return lambda character: character.isascii() and test(character)


def _in_category(name: str) -> CharacterTest:
    return lambda character: unicodedata.category(character).startswith(name)


# Reading


@dataclass(slots=True)
class _Flags:
    ignores_case: bool = False
    many_lines: bool = False
    dot_takes_newline: bool = False

    def copy(self) -> _Flags:
        return _Flags(self.ignores_case, self.many_lines, self.dot_takes_newline)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice(_Flags())
        if self._position < len(self._pattern):
            self._refuse("there is a ) too many")
        return node

    def _refuse(self, reason: str) -> NoReturn:
        _refuse(self._pattern, reason)

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _next(self, what: str) -> str:
        """The next character; `what` is missing if there is none."""
        if self._position >= len(self._pattern):
            self._refuse(f"{what} is missing at its end")
        character = self._pattern[self._position]
        self._position += 1
        return character

    def _until(self, end: str) -> str:
        found = self._pattern.find(end, self._position)
        if found < 0:
            self._refuse(f"{end} is missing")
        text = self._pattern[self._position : found]
        self._position = found + len(end)
        return text

    def _choice(self, flags: _Flags) -> _Node:
        """Up to a closing parenthesis or the end. Flags that are set inside hold up to there."""
        alternatives = [self._sequence(flags)]
        while self._take("|"):
            alternatives.append(self._sequence(flags))
        return alternatives[0] if len(alternatives) == 1 else _Choice(alternatives)

    def _sequence(self, flags: _Flags) -> _Node:
        nodes: list[_Node] = []
        while self._position < len(self._pattern) and self._pattern[self._position] not in "|)":
            start = self._position
            if self._repetition() is not None:
                self._refuse(f"{self._pattern[start : self._position]} has nothing to repeat")
            items = self._item(flags)
            nodes += items
            start = self._position
            repetition = self._repetition()
            if repetition is not None:
                if not items:
                    self._refuse(f"{self._pattern[start : self._position]} has nothing to repeat")
                self._take("?")
                start = self._position
                if self._repetition() is not None:
                    self._refuse(f"{self._pattern[start : self._position]} follows another repetition")
                nodes[-1] = _Repeat(nodes[-1], *repetition)
        return _Sequence(nodes)

    def _repetition(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        start = self._position
        if not self._take("{"):
            return None
        end = self._pattern.find("}", start)
        low, comma, high = self._pattern[start + 1 : max(end, start + 1)].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            # RE2 takes it for itself then.
            self._position = start
            return None
        self._position = end + 1
        least = _bounded(low)
        most = (_bounded(high) if high else None) if comma else least
        if least > REPETITIONS_MAX or (most is not None and not least <= most <= REPETITIONS_MAX):
            self._refuse(f"{self._pattern[start : end + 1]} is no possible repetition")
        return least, most

    def _item(self, flags: _Flags) -> list[_Node]:
        """What a repetition would refer to, as the last of the list."""
        character = self._next("something")
        if character == "(":
            return self._group(flags)
        if character == "[":
            return [_Character(self._class(flags))]
        if character == ".":
            return [_Character(lambda _: True)] if flags.dot_takes_newline else [_Character(_is_no_newline)]
        if character == "^":
            return [_Assertion.LINE_BEGINS if flags.many_lines else _Assertion.TEXT_BEGINS]
        if character == "$":
            return [_Assertion.LINE_ENDS if flags.many_lines else _Assertion.TEXT_ENDS]
        if character == "\\":
            return self._escape(flags)
        return [_literal(character, flags)]

    def _group(self, flags: _Flags) -> list[_Node]:
        inner = flags.copy()
        if self._take("?") and not self._take(":"):
            if self._take("P<") or (
                self._pattern.startswith("<", self._position)
                and self._pattern[self._position + 1 : self._position + 2] not in ("=", "!")
                and self._take("<")
            ):
                name = self._until(">")
                if not name or not all(map(_is_word, name)):
                    self._refuse(f"{name!r} is no name of a group")
            elif self._flags(inner):
                # They hold to the end of the group that is around.
                flags.ignores_case = inner.ignores_case
                flags.many_lines = inner.many_lines
                flags.dot_takes_newline = inner.dot_takes_newline
                return []
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._refuse("its groups are nested too deep")
        node = self._choice(inner)
        self._depth -= 1
        if not self._take(")"):
            self._refuse("a ) is missing")
        return [node]

    def _flags(self, flags: _Flags) -> bool:
        """Set what stands between (? and : or ). Returns whether it was the latter."""
        value, seen = True, False
        while True:
            character = self._next("a )")
            if character == "i":
                flags.ignores_case = value
            elif character == "m":
                flags.many_lines = value
            elif character == "s":
                flags.dot_takes_newline = value
            elif character == "-" and value:
                value, seen = False, False
                continue
            elif character in ":)" and (seen or (value and character == ":")):
                return character == ")"
            elif character != "U":
                self._refuse(f"(? is followed by {character}, which RE2 does not know")
            seen = True

    def _escape(self, flags: _Flags) -> list[_Node]:
        character = self._next("what \\ escapes")
        if character == "Q":
            end = self._pattern.find("\\E", self._position)
            quoted = self._pattern[self._position :] if end < 0 else self._until("\\E")
            if end < 0:
                self._position = len(self._pattern)
            return [_literal(each, flags) for each in quoted]
        if character in "AzbB":
            assertions = {
                "A": _Assertion.TEXT_BEGINS,
                "z": _Assertion.TEXT_ENDS,
                "b": _Assertion.WORD_BOUNDARY,
                "B": _Assertion.NO_WORD_BOUNDARY,
            }
            return [assertions[character]]
        test = self._escaped_class(character)
        if test is not None:
            return [_Character(_in_any_case(test) if flags.ignores_case else test)]
        return [_literal(self._escaped_character(character), flags)]

    def _escaped_class(self, character: str) -> CharacterTest | None:
        r"""What \d and the like stand for; None if it is a single character."""
        if character.lower() in _PERL_CLASSES:
            test = _PERL_CLASSES[character.lower()]
            return _none_of(test) if character.isupper() else test
        if character not in "pP":
            return None
        name = self._next("the name of a class")
        if name == "{":
            name = self._until("}")
        is_negated = (character == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name not in _CATEGORIES and name != "Any":
            self._refuse(f"{name!r} is no class of characters that is known here")
        test = _in_category("" if name == "Any" else name)
        return _none_of(test) if is_negated else test

    def _escaped_character(self, character: str) -> str:
        if character in _ESCAPED_CONTROLS:
            return _ESCAPED_CONTROLS[character]
        if character == "x":
            digits = self._next("a digit")
            digits = self._until("}") if digits == "{" else digits + self._next("a digit")
            return self._code_point(digits, 16)
        if character in "01234567":
            digits = character
            while len(digits) < 3 and self._pattern[self._position : self._position + 1] in tuple("01234567"):
                digits += self._next("a digit")
            if character != "0" and len(digits) == 1:
                self._refuse("it refers back to a group, which RE2 does not know")
            return self._code_point(digits, 8)
        if character.isalnum() or not character.isascii():
            self._refuse(f"\\{character} is not known")
        return character

    def _code_point(self, digits: str, base: int) -> str:
        try:
            if not digits.isalnum() or len(digits) > 8:
                raise ValueError
            return chr(int(digits, base))
        except ValueError:
            self._refuse(f"{digits!r} is no number of a character")

    # Classes in brackets

    def _class(self, flags: _Flags) -> CharacterTest:
        is_negated = self._take("^")
        singles: set[str] = set()
        tests: list[CharacterTest] = [singles.__contains__]
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            low = self._named_class() if self._take("[:") else self._class_member()
            if not isinstance(low, str):
                tests.append(low)
            elif self._pattern.startswith("-", self._position) and not self._pattern.startswith(
                "-]", self._position
            ):
                self._position += 1
                high = self._class_member()
                if not isinstance(high, str) or high < low:
                    self._refuse("it has an impossible range of characters")
                tests.append(_between(low, high))
            else:
                singles.add(low)
        if len(tests) > CLASS_PARTS_MAX:
            self._refuse("it has a class that is too big")
        test = _any_of(tests)
        if flags.ignores_case:
            test = _in_any_case(test)
        return _none_of(test) if is_negated else test

    def _named_class(self) -> CharacterTest:
        name = self._until(":]")
        test = _ASCII_CLASSES.get(name.removeprefix("^"))
        if test is None:
            self._refuse(f"[:{name}:] is not known")
        return _none_of(_in_ascii(test)) if name.startswith("^") else _in_ascii(test)

    def _class_member(self) -> str | CharacterTest:
        character = self._next("a ]")
        if character != "\\":
            return character
        escaped = self._next("what \\ escapes")
        return self._escaped_class(escaped) or self._escaped_character(escaped)


def _is_no_newline(character: str) -> bool:
    return character != "\n"


def _literal(wanted: str, flags: _Flags) -> _Character:
    test: CharacterTest = wanted.__eq__
    return _Character(_in_any_case(test) if flags.ignores_case else test)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _bounded(digits: str) -> int:
    """Its value, or one that is over the limit anyhow."""
    return int(digits) if len(digits) <= 6 else REPETITIONS_MAX + 1
