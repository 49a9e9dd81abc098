"""What can be said of the container without a Docker engine: how it is set up and what script it starts."""

import pytest

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
    from odradek.server.config import load

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
