"""What can be said of the reference in a container where no Docker engine runs."""

from __future__ import annotations

import pytest

from compat_tests import reference, reference_container


def test_a_machine_without_an_engine_takes_the_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # nobody listens there
    assert not reference_container.engine_answers()
    kafka = reference_container.real_kafka(reference.CURRENT, {})
    assert isinstance(kafka, reference.Kafka)


def test_a_machine_with_an_engine_takes_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_container, "engine_answers", lambda: True)
    kafka = reference_container.real_kafka(reference.OLDER, {"num.partitions": "3"})
    assert isinstance(kafka, reference_container.KafkaInContainer)
    assert kafka.bootstrap_servers == f"127.0.0.1:{kafka.port}"


def test_its_variables_name_the_options_that_the_jars_get_by_file(tmp_path) -> None:
    from odradek.config.broker_config import load

    variables = reference_container.environment_of(39092, {"num.partitions": "3"})
    config = load(environ=variables, data_dir=tmp_path)
    assert not config.warnings, "every variable is the name of a known option"
    assert config.values["num.partitions"] == 3
    of_controller = {one.name for one in config.controller_listeners}
    of_broker = [one for one in config.advertised.values() if one.name not in of_controller]
    assert [(one.host, one.port) for one in of_broker] == [("127.0.0.1", 39092)]
