"""The command line in this process, and a broker to ask."""

import json
from typing import NamedTuple

import pytest

import odradek
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.main import main


class Ended(NamedTuple):
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def rows(self):
        """Of `--output json`."""
        return json.loads(self.out)


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(num_partitions=2) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_profile(monkeypatch, tmp_path):
    """The configuration of whoever runs the tests says nothing here."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    for name in ("ODRADEK_PROFILE", "ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_CONFIG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys):
    """Runs the command line as it is given."""

    def ended(*arguments):
        try:
            status = main(list(arguments))
        except SystemExit as end:  # argparse
            status = end.code
        out, err = capsys.readouterr()
        return Ended(status, out, err)

    return ended


@pytest.fixture
def odradek_command(run, broker):
    """Runs a command against the broker."""
    return lambda *arguments: run(*arguments, "-b", broker.bootstrap_servers)
