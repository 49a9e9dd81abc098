"""The Dockerfile, as far as it can be tried without an engine: what it copies and sets, and what a broker
makes of that."""

import fnmatch
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from typing import Any

import pytest

from odradek.config.broker_config import BrokerConfig, Listener, load
from odradek.server.process.child_python import let_find_package
from odradek.server.process.health import ADDRESS_FILE_VARIABLE, write_address
from tests.config.config_sources import CONTAINER, KAFKAS_OWN, from_text

CHECKOUT = pathlib.Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """(name, arguments) of each, with its continued lines joined."""
    text = re.sub(r"^#.*\n", "", (CHECKOUT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def of_last_stage(name: str) -> list[str]:
    found = instructions()
    begin = max(place for place, (kind, _) in enumerate(found) if kind == "FROM")
    return [arguments for kind, arguments in found[begin:] if kind == name]


def environment() -> dict[str, str]:
    """What the image sets."""
    pairs = [pair for arguments in of_last_stage("ENV") for pair in shlex.split(arguments)]
    return dict(pair.split("=", 1) for pair in pairs)


def test_a_container_that_is_told_nothing_listens_everywhere_and_keeps_its_data_in_the_volume():
    config = load(environ=environment())
    assert config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 9092),)
    assert [*config.data_directories] == of_last_stage("VOLUME") == of_last_stage("WORKDIR")
    assert of_last_stage("EXPOSE") == ["9092"]
    assert config.warnings == config.without_effect == ()


def told(config: BrokerConfig) -> dict[str, Any]:
    """All but the default of an option that another one rules over."""
    return config.values | {"log.dir": config.data_directories}


def test_the_file_that_kafka_ships_rules_over_the_image(tmp_path):
    in_image = from_text(tmp_path, KAFKAS_OWN, environ=environment())
    assert told(in_image) == told(from_text(tmp_path, KAFKAS_OWN))
    config = from_text(tmp_path, "log.dir=/elsewhere", environ=environment())
    assert config.data_directories == ("/elsewhere",)


def test_the_variables_of_kafkas_container_rule_over_the_image():
    assert told(load(environ=environment() | CONTAINER)) == told(load(environ=CONTAINER))
    advertised = {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT_HOST:PLAINTEXT",
    }
    config = load(environ=environment() | advertised)
    assert config.listeners == (Listener("PLAINTEXT_HOST", "0.0.0.0", 9092),)


def test_listeners_of_the_environment_may_leave_out_the_controller_that_a_file_advertises(tmp_path):
    config = from_text(tmp_path, KAFKAS_OWN, environ={"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:19092"})
    assert config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 19092),)


def docker_runs() -> list[str]:
    texts = [(CHECKOUT / name).read_text() for name in ("docs/running.md", "Dockerfile")]
    return [
        line for text in texts for line in re.findall(r"^(?:#| {3}) *(docker run .*)$", text, re.MULTILINE)
    ]


def test_each_way_to_run_the_image_that_is_written_down_advertises_the_mapped_port():
    assert len(docker_runs()) == 2
    for line in docker_runs():
        options, arguments = line.split(" odradek serve ")
        assert "-p 9092:9092" in options
        given = dict(zip(*[iter(shlex.split(arguments))] * 2, strict=True))
        config = load(
            environ=environment(), listen=given.pop("--listen", None), advertise=given.pop("--advertise")
        )
        assert not given
        assert config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 9092),)
        assert config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "localhost", 9092)}


def test_the_image_runs_what_the_package_has_as_somebody_without_rights():
    assert of_last_stage("ENTRYPOINT") == ['["odradek"]']
    assert of_last_stage("CMD") == ['["serve"]']
    (user,) = of_last_stage("USER")
    (made,) = [command for command in of_last_stage("RUN") if "useradd" in command]
    assert re.search(rf"useradd --system --uid [1-9]\d* .* {user}\b", made)
    (volume,) = of_last_stage("VOLUME")
    assert f"install --directory --owner {user} {volume}" in made
    assert getattr(signal, of_last_stage("STOPSIGNAL")[0]) == signal.SIGTERM


def test_what_the_build_needs_is_let_through():
    patterns = [line for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line]
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not tracked:
        pytest.skip("this is no clone")
    hidden = [
        path
        for path in tracked
        for pattern in patterns
        if fnmatch.fnmatch(path, pattern.removeprefix("**/")) or path.startswith(f"{pattern}/")
    ]
    # A source in C that no wheel has; those of the compiled parts are made by the build.
    assert hidden == ["benchmarks/load.c"]


# The health check


def health_command() -> list[str]:
    (arguments,) = of_last_stage("HEALTHCHECK")
    python, *rest = re.findall(r'"([^"]*)"', arguments.partition("CMD")[2])
    assert python == "python"
    return [sys.executable, *rest]


def ask(address_file: pathlib.Path) -> int:
    variables = {ADDRESS_FILE_VARIABLE: str(address_file)}
    let_find_package(variables)
    return subprocess.run(health_command(), env=variables, capture_output=True).returncode


def test_a_broker_on_another_port_is_healthy_until_it_ends(tmp_path):
    assert ADDRESS_FILE_VARIABLE in environment()
    path = tmp_path / "address"
    variables = {ADDRESS_FILE_VARIABLE: str(path), "KAFKA_LISTENERS": "FIRST://127.0.0.1:0"}
    variables |= {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "FIRST:PLAINTEXT"}
    let_find_package(variables)
    command = [sys.executable, "-m", "odradek", "serve", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert ask(path) == 0
            assert path.read_text() in ready
        finally:
            broker.terminate()
    assert ask(path) == 1


@pytest.mark.parametrize(
    ("host", "address"),
    [("", "127.0.0.1:7"), ("0.0.0.0", "127.0.0.1:7"), ("::", "[::1]:7"), ("172.17.0.2", "172.17.0.2:7")],
)
def test_the_address_is_one_at_which_the_broker_can_be_asked(tmp_path, host, address):
    bound = [("FIRST", host, 7), ("SECOND", "127.0.0.1", 8)]
    write_address(str(tmp_path / "address"), bound)
    assert (tmp_path / "address").read_text() == address
    write_address(str(tmp_path / "address"), bound, {"FIRST"})
    assert (tmp_path / "address").read_text() == "127.0.0.1:8"
    write_address(str(tmp_path / "address"), bound, {"FIRST", "SECOND"})
    assert (tmp_path / "address").read_text() == f"ssl://{address}"
