"""A pattern that deletes: a person is asked, a script has to say `--yes`."""

import pytest

from odradek.client.admin.topics import create_topic
from tests.kit.terminal import Terminal


@pytest.fixture
def topics(cluster, request):
    """A pattern that names three topics."""
    base = request.node.name.partition("[")[0][-20:]
    for name in ("a", "b", "c"):
        create_topic(cluster, f"{base}.{name}", 1, {})
    return f"{base}.*"


def left(odradek_command, pattern):
    return [row["topic"] for row in odradek_command("topics", "list", pattern, "-J").rows]


def test_a_script_has_to_say_yes(odradek_command, topics):
    before = left(odradek_command, topics)
    assert len(before) == 3
    ended = odradek_command("topics", "delete", topics)
    told = (
        f"{topics} would delete 3 topics with all their records: give --yes, or --dry-run to see them first"
    )
    assert (ended.status, ended.out, ended.err) == (1, "", f"odradek: {told}\n")
    assert left(odradek_command, topics) == before
    assert odradek_command("topics", "delete", topics, "--yes").status == 0
    assert left(odradek_command, topics) == []


def test_a_name_is_deleted_without_a_question(odradek_command, topics):
    first, *others = left(odradek_command, topics)
    assert odradek_command("topics", "delete", first).status == 0
    assert left(odradek_command, topics) == others


def test_a_person_is_asked_and_may_refuse(odradek_command, topics, broker):
    before = left(odradek_command, topics)
    with Terminal("topics", "delete", topics, "-b", broker.bootstrap_servers) as terminal:
        question = terminal.read_until("[y/N] ")
        assert question == (
            "".join(f"  {name}\n" for name in before) + "Delete 3 topics with all their records? [y/N] "
        )
        terminal.type("\n")
        assert terminal.ended() == (f"{question}\nodradek: nothing was deleted\n", 1)
    assert left(odradek_command, topics) == before


def test_a_person_is_asked_and_may_agree(odradek_command, topics, broker):
    with Terminal("topics", "delete", topics, "-b", broker.bootstrap_servers) as terminal:
        terminal.read_until("[y/N] ")
        terminal.type("y\n")
        assert terminal.ended()[1] == 0
    assert left(odradek_command, topics) == []


def test_records_and_groups_and_commits_of_a_pattern_are_asked_for_too(odradek_command, topics):
    first = left(odradek_command, topics)[0]
    ended = odradek_command("topics", "trim", topics, "--before", "end")
    assert f"{topics} would delete records of 3 topics: give --yes" in ended.err
    assert odradek_command("topics", "trim", topics, "--before", "end", "-y").status == 0
    moved = odradek_command("groups", "seek", "asked.g", "--to", "start", "--topics", first)
    assert (moved.status, moved.err) == (0, "")
    ended = odradek_command("groups", "delete-offsets", "asked.g", topics)
    assert "would delete what asked.g has committed for 1 topic: give --yes" in ended.err
    ended = odradek_command("groups", "delete", "asked.*")
    assert "asked.* would delete 1 group with its commits: give --yes" in ended.err
    assert odradek_command("groups", "delete", "asked.*", "--yes").status == 0
    assert odradek_command("groups", "list", "asked.*", "-J").rows == []
