"""What can be said of the container without a Docker engine: how it is set up and what script it starts."""

import inspect
import os
import re
import subprocess
import sys

import pytest

if not os.environ.get("CI"):  # whose environment has it: there its absence is an error
    pytest.importorskip("testcontainers")


@pytest.fixture
def container(monkeypatch):
    # testcontainers asks the engine for its version at once.
    monkeypatch.setattr("testcontainers.core.container.DockerClient", lambda **_: None)
    from odradek.testing import OdradekContainer

    return OdradekContainer("odradek:test")


def test_it_listens_for_the_mapped_port_and_for_its_network(container):
    assert container.env["KAFKA_LISTENERS"] == "PLAINTEXT://0.0.0.0:9093,NETWORK://0.0.0.0:9092"
    assert 9093 in container.ports or "9093" in container.ports


def test_the_start_script_advertises_the_mapped_port_only(container):
    script = container.start_script("127.0.0.1:32768")
    assert script == b"exec odradek serve --set advertised.listeners=PLAINTEXT://127.0.0.1:32768\n"


def test_its_settings_are_ones_that_the_broker_takes(container, tmp_path):
    from odradek.config.broker_config import load

    container.with_kraft().with_cluster_id("MkU3OEVBNTcwNTJENDM2Qk")
    config = load(
        environ=container.env,
        data_dir=tmp_path,
        sets=["advertised.listeners=PLAINTEXT://127.0.0.1:32768"],
    )
    assert [(one.name, one.port) for one in config.listeners] == [("PLAINTEXT", 9093), ("NETWORK", 9092)]
    assert list(config.advertised) == ["PLAINTEXT"]
    assert config.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    assert not config.warnings


def test_it_has_the_interface_of_kafka_container(container):
    try:
        from testcontainers.community.kafka import KafkaContainer
    except ImportError:  # where older releases have it
        from testcontainers.kafka import KafkaContainer
    steps_of_its_start = {"configure", "tc_start"}
    for name, theirs in vars(KafkaContainer).items():
        if not inspect.isfunction(theirs) or name in steps_of_its_start:
            continue
        if name == "__init__" or not name.startswith("_"):
            ours = inspect.signature(getattr(type(container), name)).parameters
            positional = [one for one in inspect.signature(theirs).parameters if one != "kwargs"]
            assert list(ours)[: len(positional)] == positional, name


def test_only_plaintext_is_promised():
    from odradek.testing import OdradekContainer

    with pytest.raises(ValueError, match="PLAINTEXT only"):
        OdradekContainer(security_protocol="SSL")


def test_the_bootstrap_server_is_the_mapped_port(container, monkeypatch):
    monkeypatch.setattr(container, "get_container_host_ip", lambda: "docker.example")
    monkeypatch.setattr(container, "get_exposed_port", {9093: 32768}.__getitem__)
    assert container.get_bootstrap_server() == "docker.example:32768"


def test_the_start_script_prints_the_line_that_is_waited_for(container, tmp_path):
    # The image's console script, and ports of a machine that is shared.
    (tmp_path / "odradek").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m odradek "$@"\n')
    (tmp_path / "odradek").chmod(0o755)
    environment = {
        **os.environ,
        **container.env,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,NETWORK://127.0.0.1:0",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
    }
    script = container.start_script("127.0.0.1:32768")
    with subprocess.Popen(["sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert re.search(container.ready_pattern, broker.stdout.readline())
        finally:
            broker.terminate()
        assert broker.wait(20) == 0
