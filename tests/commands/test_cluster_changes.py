"""Features, elections and moves at a broker alone; compat_tests has them in a cluster."""

import re

import pytest

from tests.kit.terminal import Terminal


def test_a_level_is_raised_lowered_and_tried(odradek_command):
    def level():
        rows = odradek_command("cluster", "features", "-J").rows
        return next(row["finalized_level"] for row in rows if row["feature"] == "share.version")

    highest = level()
    assert highest >= 1
    lowered = odradek_command("cluster", "features", "downgrade", "share.version=0", "-J")
    assert lowered.rows == [
        {
            "feature": "share.version",
            "finalized_level_before": highest,
            "finalized_level": 0,
            "finalized_version_before": str(highest),
            "finalized_version": "0",
        }
    ]
    assert level() == 0
    assert odradek_command("cluster", "features", "upgrade", "share.version=1", "--dry-run").status == 0
    assert level() == 0
    assert odradek_command("cluster", "features", "upgrade", f"share.version={highest}").status == 0
    assert level() == highest


def test_the_levels_of_a_release_are_those_that_it_has_above_the_present_ones(odradek_command):
    told = odradek_command("cluster", "features", "upgrade", "--release-version", "4.0", "--dry-run")
    assert (told.status, told.out) == (0, "all features have these levels\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["features", "upgrade"], "features upgrade needs either NAME=LEVEL or --release-version"),
        (["features", "upgrade", "share.version"], "'share.version' is not NAME=LEVEL"),
        (
            ["features", "upgrade", "shar.version=1"],
            "has no feature shar.version; did you mean share.version?",
        ),
        (["features", "upgrade", "share.version=x"], "share.version is 'x'"),
        (["features", "upgrade", "metadata.version=4.4-IV9"], "has no level '4.4-IV9'; did you mean 4.4-IV"),
        (
            ["features", "upgrade", "metadata.version=x"],
            "has no level 'x': they are numbers or names",
        ),
        (["features", "upgrade", "--release-version", "1.0"], "there is no release '1.0'"),
        (["features", "upgrade", "share.version=99"], "changing features was refused: "),
        (["features", "--release-version", "4.0"], "--release-version is for"),
        (["features", "upgrad"], "did you mean upgrade?"),
        (["elect", "nowhere"], "topic nowhere does not exist"),
        (["elect", "--unclean"], "--unclean loses records: name the partitions"),
    ],
)
def test_what_cannot_be_is_one_sentence(odradek_command, arguments, sentence):
    ended = odradek_command("cluster", *arguments)
    assert ended.status in (1, 2)
    assert sentence in ended.err


def test_where_each_leader_is_the_preferred_one_nothing_is_elected(odradek_command):
    odradek_command("topics", "create", "led", "-p", "2")
    ended = odradek_command("cluster", "elect")
    assert (ended.status, ended.out, ended.err) == (0, "no partition needs an election\n", "")
    assert odradek_command("cluster", "elect", "led:1", "--unclean", "-J").rows == []


def test_a_move_to_where_all_is_moves_nothing(odradek_command):
    odradek_command("topics", "create", "stays", "-p", "2")
    assert odradek_command("topics", "move", "stays", "--to", "1").out == "all is where it should be\n"
    assert odradek_command("topics", "move").out == "nothing is being moved\n"
    assert odradek_command("topics", "move", "stays", "--cancel").out == "nothing is being moved\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--to", "1"], "--to and --cancel need a TOPIC"),
        (["stays"], "give either --to, with the brokers of the replicas, or --cancel"),
        (["stays", "--to", "1,7"], "broker 7 does not exist: there are 1"),
        (["stays", "--to", ","], "--to names no broker"),
        (["stays", "--to", "one"], "--to is 'one'"),
        (["stays", "--to", "1", "--replicas", "2"], "2 replicas need as many brokers, and --to names 1"),
        (["nowhere.*", "--to", "1"], "no topic matches nowhere.*"),
        (["stays:9", "--to", "1"], "partition stays:9 does not exist"),
    ],
)
def test_a_move_that_cannot_be_is_one_sentence(odradek_command, arguments, sentence):
    odradek_command("topics", "create", "stays", "-p", "2", "--if-not-exists")
    ended = odradek_command("topics", "move", *arguments)
    assert (ended.status, ended.out) == (1, "")
    assert sentence in ended.err


def test_a_node_that_is_not_registered_is_told_with_those_that_are(odradek_command):
    ended = odradek_command("cluster", "unregister", "7", "--yes")
    assert (ended.status, ended.err) == (1, "odradek: broker 7 is not registered: there are 1\n")
    assert "NODE is 'x'" in odradek_command("cluster", "unregister", "x").err


def test_a_script_says_yes_before_a_node_is_unregistered(odradek_command):
    odradek_command("topics", "create", "held", "-p", "2", "--if-not-exists")
    ended = odradek_command("cluster", "unregister", "1")
    assert (ended.status, ended.out) == (1, "")
    assert re.fullmatch(
        r"odradek: this would unregister broker 1, .*which has replicas of [0-9]+ partitions: give --yes\n",
        ended.err,
    )


def test_a_person_is_asked_before_a_node_is_unregistered(broker):
    with Terminal("cluster", "unregister", "1", "-b", broker.bootstrap_servers) as terminal:
        question = terminal.read_until("[y/N] ")
        assert question.startswith("Unregister broker 1")
        terminal.type("\n")
        assert terminal.ended() == (f"{question}\nodradek: broker 1 stays registered\n", 1)


def test_what_would_be_unregistered_is_shown(odradek_command):
    ended = odradek_command("cluster", "unregister", "1", "--dry-run")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("this would unregister broker 1")
    assert odradek_command("cluster", "unregister", "1", "--dry-run", "-J").rows == [{"broker": 1}]
