"""The parser of all command lines: what argparse leaves open."""

import pytest

from odradek.config.command_line import Parser, exact


@pytest.fixture
def parser():
    made = Parser(prog="odradek topics")
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ("list", "describe", "delete"):
        action = actions.add_parser(name)
        action.add_argument("topics", nargs="*", metavar="TOPIC")
        action.add_argument("-p", "--partitions")
        action.add_argument("--json", action="store_true")
        action.add_argument("--codec", choices=("gzip", "zstd"))
    return made


def refused(parser, capsys, *words):
    """The last line on stderr; the first one begins with the usage of the action."""
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_options_may_stand_between_names(parser):
    options = parser.parse_args(["describe", "orders", "-p", "3", "copies", "--json", "more"])
    assert (options.topics, options.partitions, options.json) == (["orders", "copies", "more"], "3", True)
    options = parser.parse_args(["describe", "orders", "--", "-p", "--json"])
    assert (options.topics, options.partitions, options.json) == (["orders", "-p", "--json"], None, False)


def test_options_of_an_action_may_stand_before_it(parser):
    options = parser.parse_args(["-p", "3", "--json", "list", "orders"])
    assert (options.action, options.partitions, options.topics) == ("list", "3", ["orders"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lst"], "there is no action 'lst'; did you mean list?"),
        (["del"], "there is no action 'del'; did you mean delete?"),
        (["frobnicate"], "there is no action 'frobnicate'; there are list, describe, delete"),
        (["list", "--jsn"], "unrecognized arguments: --jsn; did you mean --json?"),
        (["list", "--partition=3"], "unrecognized arguments: --partition=3; did you mean --partitions?"),
        (["list", "--frobnicate"], "unrecognized arguments: --frobnicate\n"),
        (["list", "--codec", "gzp"], "did you mean gzip?"),
        (["--hlp"], "unrecognized arguments: --hlp; did you mean --help?"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(parser, capsys, words, sentence):
    assert sentence in refused(parser, capsys, *words)


def test_an_unknown_option_shows_the_usage_of_its_action(parser, capsys):
    assert refused(parser, capsys, "list", "--jsn").startswith("usage: odradek topics list ")


def test_without_an_action_the_help_is_shown(parser, capsys):
    assert "positional arguments:\n  ACTION\n" in refused(parser, capsys)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (b"plain", "plain"),
        ("müller".encode(), "müller"),
        (b"m\xfcller", "m\ufffdller"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xe2\x82-", "\ufffd-"),
        (b"\xed\xa0\x80", "\ufffd"),
    ],
)
def test_what_is_not_utf8_becomes_what_a_broker_makes_of_it(parser, word, text):
    options = parser.parse_args(["describe", word.decode("utf-8", "surrogateescape")])
    assert options.topics == [text]


def test_half_a_character_that_stands_for_no_byte_is_replaced(parser):
    options = parser.parse_args(["describe", "\ud800", "\ud83d\ude00"])
    assert options.topics == ["\ufffd", "\U0001f600"]


def test_paths_and_parts_of_records_keep_their_bytes():
    made = Parser(prog="odradek")
    made.add_argument("--topic", metavar="TOPIC")
    made.add_argument("--from", dest="file", metavar="FILE")
    made.add_argument("--key", metavar="KEY", type=exact)
    name = "m\udcfcller"
    options = made.parse_args(["--topic", name, "--from", name, "--key", name])
    assert (options.topic, options.file, options.key) == ("m\ufffdller", name, name)


ABOUT = """\
A description that its writer has broken at sixty columns, in
two lines.
keys: this has a line of its own."""
EXAMPLES = """\
examples:
  odradek serve --short           of a command
  odradek serve --listen localhost:0 --data-dir /tmp/try
                                  what it does, told in its column
  odradek serve --metrics 9644    where metrics are, and many more things"""


def helped(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    return Parser(prog="odradek", description=ABOUT, epilog=EXAMPLES, add_help=False).format_help()


def test_help_is_as_written_where_there_is_room(monkeypatch):
    assert helped(monkeypatch, 80) == f"usage: odradek\n\n{ABOUT}\n\n{EXAMPLES}\n"


def test_help_is_wrapped_at_the_width_of_a_narrow_terminal(monkeypatch):
    assert helped(monkeypatch, 52).splitlines()[2:] == [
        "A description that its writer has broken at sixty",
        "columns, in two lines.",
        "keys: this has a line of its own.",
        "",
        "examples:",
        "  odradek serve --short           of a command",
        "  odradek serve --listen localhost:0 --data-dir \\",
        "      /tmp/try",
        "                        what it does, told in its",
        "                        column",
        "  odradek serve --metrics 9644",
        "                        where metrics are, and",
        "                        many more things",
    ]
