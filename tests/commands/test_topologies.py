"""`odradek groups describe --topology`: Kafka's text for people, rows for programs, or a reason."""

import pytest

import odradek
from odradek.client.group_offsets import commit
from tests.client.applications import KEEPING, start_application
from tests.client.topics import create_topic

TEXT = """\
Topologies:
   Sub-topology: 0
    Source: read (topics: [lines, more])
      --> split
    Processor: split (stores: [])
      --> count, keys
      <-- read
    Sink: keys (topic: words)
      <-- split
    Processor: count (stores: [counts])
      --> any
      <-- split
    Sink: any (topic: null)
      <-- count

   Sub-topology: 1
    Source: alone (topics: [words])
      --> none

   Sub-topology: 2 for global store (will not generate tasks)
    Source: rates (topics: [rates])
      --> fill
    Processor: fill (stores: [rates])
      --> none
      <-- rates

"""


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(num_partitions=2, options=KEEPING) as running:
        yield running


def test_a_person_reads_kafkas_text_and_a_program_a_row_for_each_node(odradek_command, cluster):
    create_topic(cluster, 1, "lines")
    start_application(cluster, "words", "lines")
    ended = odradek_command("groups", "describe", "words", "--topology")
    heading, text = ended.out.split("\n", 1)
    assert (ended.status, text) == (0, TEXT)
    assert heading == "words: Stable, streams, epoch 0 of the topology"
    rows = odradek_command("groups", "describe", "words", "--topology", "-J").rows
    assert len(rows) == 8
    assert rows[1] == {
        "group": "words",
        "type": "streams",
        "state": "Stable",
        "topology_epoch": 0,
        "subtopology": "0",
        "global": False,
        "node": "split",
        "node_type": "processor",
        "topics": [],
        "stores": [],
        "successors": ["count", "keys"],
        "predecessors": ["read"],
    }
    assert [(row["subtopology"], row["global"]) for row in rows[-2:]] == [("2", True)] * 2


def test_groups_without_a_description_are_named_with_the_reason(odradek_command, cluster):
    create_topic(cluster, 1, "plain")
    start_application(cluster, "silent", "plain", None)
    ended = odradek_command("groups", "describe", "silent", "--topology")
    assert (ended.status, ended.out) == (1, "")
    assert "no description of the topology of group silent is stored" in ended.err
    commit(cluster, "readers", {("plain", 0): (0, "")})
    ended = odradek_command("groups", "describe", "readers", "--topology")
    assert (ended.status, ended.err) == (
        1,
        "odradek: group readers has no topology: it is a classic group, not of Kafka Streams\n",
    )
