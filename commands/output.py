"""Output of commands: tables for people, JSON and TSV for programs.

    output = Output.of(options)
    output.rows([Column("topic"), Column("partitions", right=True)], ({"topic": "orders", "partitions": 3},))

The keys of rows are the documented ones: in snake_case, with the unit in the name (`size_bytes`). A table has
only the columns that it is given, with a heading of their own; JSON has all keys of a row.
"""

import argparse
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from odradek.config.os_reason import reason_of

FORMS = ("table", "json", "jsonl", "tsv")
LINES = ("text", "json", "jsonl")
"""Forms of commands that print while they find: both of JSON are an object a line, as their list may have no
end."""
COLUMN_LEAST = 12
"""Least width of a column of texts where the table is wider than the terminal; others are cut before it."""
Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: a key of the rows."""

    key: str
    heading: str = ""
    """The default is the key with spaces."""
    right: bool = False
    """Numbers stand at the right."""
    text: Callable[[Any], str] | None = None
    """How a value is shown to a person; None values are shown as "-"."""
    whole: bool = False
    """Never cut, as a part of it names something else; so is the first column."""


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """`--output` and `--color`."""
    group = parser.add_argument_group("output")
    add_form_arguments(group, FORMS, "a table for people, or a form for programs")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours (default: if a terminal)",
    )


def add_form_arguments(group: Any, forms: Sequence[str], about: str) -> None:
    """`--output FORM` with one of these forms, of which the first is the default; and `-J`, which is JSON."""
    group.add_argument("--output", choices=forms, default=forms[0], help=about)
    group.add_argument(
        "-J", "--json", dest="output", action="store_const", const="json", help="the same as --output json"
    )


class Output:
    """Where a command prints, and how."""

    def __init__(self, form: str, out: TextIO, width: int | None = None, colour: bool = False) -> None:
        """`width`: of the terminal, in columns; None: what is printed is neither cut nor wrapped."""
        assert form in FORMS
        self.form, self.out, self.width, self.colour = form, out, width, colour

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Output":
        """To stdout, as the options of `add_output_arguments` say."""
        out = sys.stdout
        return cls(options.output, out, _width(out), has_colour(options.color, out, os.environ))

    @property
    def is_table(self) -> bool:
        return self.form == "table"

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], nothing: str = "") -> None:
        """Prints the rows; `nothing` is what a person reads if there are none."""
        if self.form == "table":
            self._table(columns, list(rows), nothing)
        elif self.form == "tsv":
            self._tsv(columns, rows)
        elif self.form == "jsonl":
            for row in rows:
                self._write(json.dumps(row, ensure_ascii=False, default=str))
        else:
            self._json(rows)

    def line(self, text: str = "", *, mark: str = "", codes: str = "", hanging: int = 0) -> None:
        """A line for a person; programs do not get it.

        `mark` stands before it, styled with `codes`. What the terminal has no room for goes on in more lines,
        which begin with `hanging` spaces.
        """
        if self.is_table:
            first, *others = self._wrapped(mark + printable(text), hanging)
            styled = self.styled(mark, codes) if codes else mark
            self._write("\n".join([styled + first[len(mark) :], *others]))

    def heading(self, text: str) -> None:
        """A line above a table."""
        if self.is_table:
            for line in self._wrapped(printable(text), 0):
                self._write(self.styled(line, "1"))

    def styled(self, text: str, codes: str) -> str:
        """With the codes of ANSI, if colours are on; a text has to say it all without them."""
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour else text

    def _wrapped(self, text: str, hanging: int) -> list[str]:
        return [text] if self.width is None else wrapped(text, self.width, hanging)

    def _write(self, text: str) -> None:
        self.out.write(f"{text}\n")

    def _json(self, rows: Iterable[Row]) -> None:
        begun = False
        for row in rows:
            self.out.write((",\n" if begun else "[\n") + json.dumps(row, ensure_ascii=False, default=str))
            begun = True
        self.out.write("\n]\n" if begun else "[]\n")

    def _tsv(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        self._write("\t".join(column.key for column in columns))
        for row in rows:
            self._write("\t".join(_field(row.get(column.key)) for column in columns))

    def _table(self, columns: Sequence[Column], rows: Sequence[Row], nothing: str) -> None:
        if not rows:
            if nothing:
                self.line(nothing)
            return
        lines = [[column.heading or column.key.replace("_", " ") for column in columns]]
        lines += [[_cell(column, row.get(column.key)) for column in columns] for row in rows]
        widths = [max(map(display_width, cells)) for cells in zip(*lines, strict=True)]
        if self.width is not None:
            room = room_of_first(widths, lines[0], columns, self.width)
            widths[0] = max(width for cells in lines if (width := display_width(cells[0])) <= room)
            widths = fitted(widths, lines[0], columns, self.width)
        for number, cells in enumerate(lines):
            if display_width(cells[0]) > widths[0]:
                # A long name has a line of its own, and the rest stands below it in its columns.
                self._write(cells[0])
                cells = ["", *cells[1:]]
            line = "  ".join(
                padded(cut(cell, width), width, column.right)
                for cell, width, column in zip(cells, widths, columns, strict=True)
            ).rstrip()
            whole = sum(widths[: _whole_count(columns)]) + 2 * _whole_count(columns)
            line = line if self.width is None else cut(line, max(self.width, whole + 1))
            self._write(self.styled(line, "2") if number == 0 else line)


def has_colour(wanted: str, out: TextIO, environ: Mapping[str, str]) -> bool:
    """Source of the rules: no-color.org and force-color.org; TERM=dumb has none."""
    if wanted != "auto":
        return wanted == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return out.isatty() and environ.get("TERM") != "dumb"


def _width(out: TextIO) -> int | None:
    """Width of a terminal; None for a pipe or a file, where nothing is cut."""
    if not out.isatty():
        return None
    try:
        return max(20, int(os.environ.get("COLUMNS") or os.get_terminal_size(out.fileno()).columns))
    except (OSError, ValueError):
        return 80


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return "-"
    if column.text is not None:
        return printable(column.text(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and column.right:
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value)))
    return printable(str(value))


def _field(value: Any) -> str:
    """TSV has no quotes: what would break a line is escaped as JSON does it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return _field(",".join(map(str, value)))
    if isinstance(value, dict):
        return _field(json.dumps(value, ensure_ascii=False))
    text = str(value)
    for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return text


def printable(text: str) -> str:
    """Without characters that would move the cursor or change the terminal: they are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text
    )


def display_width(text: str) -> int:
    """Columns of a terminal: wide characters take two, those that are put onto others none."""
    if text.isascii():
        return len(text)
    return sum(_width_of(one) for one in text)


def _width_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int, right: bool) -> str:
    """Filled with spaces to the width."""
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def cut(text: str, width: int) -> str:
    """At most `width` columns, with an ellipsis where something is left out."""
    return text if display_width(text) <= width else text[: _fitting(text, width - 1)] + "…"


def _fitting(text: str, width: int) -> int:
    """How many of its characters fit into so many columns."""
    for number, character in enumerate(text):
        width -= _width_of(character)
        if width < 0:
            return number
    return len(text)


def fitted(widths: Sequence[int], headings: Sequence[str], columns: Sequence[Column], most: int) -> list[int]:
    """Widths of columns that fit `most`, if that is possible: the widest texts are made narrower. Numbers are
    not, as a part of one is another number, nor what names a row."""
    from bisect import bisect_right

    least = _least(widths, headings, columns)

    def at(level: int) -> list[int]:
        """With texts as wide as `level` at most, or as their least."""
        return [
            width if column.right else min(width, max(level, low))
            for width, low, column in zip(widths, least, columns, strict=True)
        ]

    room = most - 2 * (len(columns) - 1)
    return at(bisect_right(range(max(widths) + 1), room, key=lambda level: sum(at(level))) - 1)


def room_of_first(
    widths: Sequence[int], headings: Sequence[str], columns: Sequence[Column], most: int
) -> int:
    """The longest name of a row that stands in one line with the other columns, which need their least."""
    others = [
        width if column.right else min(width, low)
        for width, low, column in zip(widths, _least(widths, headings, columns), columns, strict=True)
    ][1:]
    if not others:
        return widths[0]
    return max(most - sum(others) - 2 * len(others), most // 2, display_width(headings[0]))


def _least(widths: Sequence[int], headings: Sequence[str], columns: Sequence[Column]) -> list[int]:
    least = [max(COLUMN_LEAST, display_width(heading)) for heading in headings]
    for number in range(_whole_count(columns)):
        least[number] = widths[number]
    return least


def _whole_count(columns: Sequence[Column]) -> int:
    """Columns at the left that name a row."""
    return next((at for at, column in enumerate(columns) if at > 0 and not column.whole), len(columns))


def wrapped(text: str, width: int, hanging: int = 0) -> list[str]:
    """Lines of at most `width` columns, broken at spaces where there are some; all but the first begin with
    `hanging` spaces, or with fewer if they would take more than a half of the width."""
    indent = " " * min(hanging, width // 2)
    lines = []
    while display_width(text) > width:
        end = _fitting(text, width)
        space = text.rfind(" ", 0, end + 1)
        if not text[: max(space, 0)].strip():
            space = end
        lines.append(text[:space].rstrip())
        text = indent + text[space:].lstrip()
    return [*lines, text]


# Values for people ------------------------------------------------------------------------------------


def size_text(size_bytes: int) -> str:
    """`1.2 MB`: three digits, decimal units."""
    value, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.95 else f"{value:.1f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """Local time with its zone; Kafka's timestamps are milliseconds since 1970, -1 for none."""
    from datetime import UTC, datetime

    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def quantity(number: int, one: str, many: str = "") -> str:
    """`1 topic`, `3 topics`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# Where it goes ----------------------------------------------------------------------------------------


def flushed(status: int) -> int:
    """The exit status of a command that has printed all, when that is written out. It stays what it is when
    the reader of a pipe has gone."""
    try:
        sys.stdout.flush()
        return status
    except OSError as error:
        return output_failed(error) or status


def output_failed(error: OSError) -> int:
    """The exit status: 0 if the reader (head, less) has seen enough, 1 if the disk of a file is full; that is
    told."""
    status = 0
    if not isinstance(error, BrokenPipeError):
        print(f"odradek: the output cannot be written: {reason_of(error)}.", file=sys.stderr)
        status = 1
    # Python would complain once more while it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def terminal() -> TextIO | None:
    """Where to show progress: a person's terminal."""
    return sys.stderr if sys.stderr.isatty() else None
