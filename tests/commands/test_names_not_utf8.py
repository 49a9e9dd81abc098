"""Names that are not UTF-8 on the command line, as a shell of Latin-1 gives them.

Each is U+FFFD for a broker. A file is found by its bytes, and the parts of records keep theirs.
"""

import base64
import json
import os

import pytest

from odradek.client.admin.topics import create_topic

LATIN = os.fsdecode(b"m\xfcller")
SHOWN = "m\ufffdller"

STORIES = [
    ["topics", "describe", LATIN],
    ["topics", "create", LATIN],
    ["topics", "delete", LATIN, "--yes"],
    ["topics", "list", LATIN],
    ["groups", "list", LATIN],
    ["groups", "describe", LATIN],
    ["groups", "delete", LATIN, "--yes"],
    ["groups", "seek", LATIN, "--to", "start"],
    ["groups", "seek", "g", "--to", "start", "--topics", LATIN],
    ["groups", "delete-offsets", LATIN, LATIN],
    ["consume", LATIN, "-e"],
    ["consume", "latin", "-e", "-g", LATIN],
    ["produce", LATIN, "-l", os.devnull],
    ["produce", "latin", "--transaction", LATIN, "-l", __file__],
    ["transactions", "describe", LATIN],
    ["producers", "list", LATIN],
    ["configs", "get", f"topic:{LATIN}"],
    ["configs", "get", f"group:{LATIN}"],
    ["configs", "set", f"group:{LATIN}", f"{LATIN}={LATIN}"],
    ["acls", "list", "--topic", LATIN],
    ["acls", "add", "--principal", f"User:{LATIN}", "--topic", LATIN, "--operation", "read"],
    ["quotas", "list", "--user", LATIN],
    ["quotas", "set", "--user", LATIN, "producer_byte_rate=1000"],
    ["users", "list", LATIN],
    ["cluster", "elect", LATIN],
    ["cluster", "features", "upgrade", f"{LATIN}=1"],
    ["topics", "list", "-X", f"client.id={LATIN}"],
    ["topics", "list", "-X", f"ssl.truststore.location={LATIN}"],
    ["topics", "list", "--profile", LATIN],
    ["doctor", "--topic", LATIN, "--write"],
]


@pytest.fixture(scope="module", autouse=True)
def topic(cluster):
    create_topic(cluster, "latin", 1, {})


@pytest.mark.parametrize("words", STORIES, ids=lambda words: " ".join(words[:2]))
def test_a_command_asks_for_the_name_that_a_broker_would_read(odradek_command, words):
    ended = odradek_command(*words)
    assert ended.status in (0, 1)
    assert "surrogates" not in ended.err
    assert LATIN not in ended.out + ended.err


def test_a_group_has_the_name_that_clients_with_such_names_get(odradek_command):
    assert odradek_command("consume", "latin", "-e", "-q", "-g", LATIN).status == 0
    told = odradek_command("groups", "list", "--output", "json")
    assert SHOWN in {row["group"] for row in told.rows}


def test_a_record_has_the_bytes_of_its_arguments_and_a_file_those_of_its_name(odradek_command, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"m\xfcller")
    with open(path, "wb") as file:
        file.write(b"value\n")
    written = odradek_command(
        "produce", "latin", "-q", "-k", LATIN, "-H", f"h={LATIN}", "-l", os.fsdecode(path)
    )
    assert (written.status, written.err) == (0, "")
    read = odradek_command("consume", "latin", "-e", "-q", "--key", LATIN, "--json")
    (row,) = map(json.loads, read.out.splitlines())
    (header,) = row["headers"]
    key = base64.b64encode(b"m\xfcller").decode()
    assert (row["key_base64"], header["value_base64"], row["value"]) == (key, key, "value")
