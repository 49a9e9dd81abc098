"""docs/howto/run-as-a-service.md: the unit, the file of options and the variables mean what they say."""

import pathlib
import re
import shutil
import subprocess

import pytest

from odradek.commands.command import COMMANDS, parser_of
from odradek.config.broker_config import load

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "howto" / "run-as-a-service.md").read_text()


def block(path):
    (found,) = re.findall(rf"^```\w+\n# {re.escape(path)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


def test_the_options_are_known(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(block("/etc/odradek/server.properties"))
    config = load(str(file), environ={})
    assert not config.warnings
    assert config.data_directories == ("/var/lib/odradek",)
    assert config.metrics_address == ("localhost", 9644)


def test_the_variables_of_the_compose_file_are_known():
    variables = dict(re.findall(r"^ +(KAFKA_\w+): (.*)$", block("compose.yaml"), re.MULTILINE))
    config = load(environ=variables)
    assert not config.warnings
    assert [listener.name for listener in config.listeners] == ["HOST", "CONTAINERS"]


def test_the_unit_starts_a_command_that_there_is():
    unit = block("/etc/systemd/system/odradek.service")
    program, command, *arguments = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    assert program.endswith("/odradek")
    parser = parser_of(COMMANDS[command], COMMANDS[command].load())
    assert parser.parse_args(arguments).properties == "/etc/odradek/server.properties"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    unit = block("/etc/systemd/system/odradek.service").replace("/opt/odradek/bin/odradek", "/bin/true")
    path = tmp_path / "odradek.service"
    path.write_text(unit.replace("User=odradek", "User=root").replace("Group=odradek", "Group=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "odradek.service" in line]
    assert told == []
