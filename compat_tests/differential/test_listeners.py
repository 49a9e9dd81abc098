"""Every way to write a listener's host: who can connect, and which host clients are told for it.

One Kafka and one Odradek have a listener for each, without `advertised.listeners`; 0.0.0.0, with which Kafka
does not start like that, has brokers of its own.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.differential.harness import SECONDS, Side
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest

IPV4, IPV6 = "127.0.0.1", "::1"
HOST_NAME = socket.gethostname()
EVERY_INTERFACE = {"EMPTY": "", "IPV6_ANY": "[::]", "BARE_ANY": "::", "LONG_ANY": "[0:0:0:0:0:0:0:0]"}
NAMES = {"NAME": "localhost", "CAPITALS": "LOCALHOST", "MACHINE": HOST_NAME}
ADDRESSES = {
    "IPV4": IPV4,
    "SHORT": "127.1",
    "IPV6": "[::1]",
    "BARE": "::1",
    "MAPPED": "[::ffff:127.0.0.1]",
}
HOSTS = {**EVERY_INTERFACE, **NAMES, **ADDRESSES}


class KafkaOn(reference.Kafka):
    """Kafka with these listeners; it waits for that of 127.0.0.1. `told` are its advertised ones."""

    def __init__(self, hosts: Mapping[str, str], told: str | None) -> None:
        super().__init__(host=shared_host())
        self.ports = {name: reference.free_port() for name in hosts}
        self.port = self.ports["IPV4"]
        self._hosts, self._told = hosts, told

    def _format(self, config: pathlib.Path) -> None:
        super()._format(config)
        controller = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        mapped = ",".join(f"{name}:PLAINTEXT" for name in ("CONTROLLER", *self.ports))
        lines = {
            "listeners": f"{listeners(self._hosts, self.ports)},{controller}",
            "advertised.listeners": self._told and f"{listeners({'IPV4': IPV4}, self.ports)},{self._told}",
            "inter.broker.listener.name": "IPV4",
            "listener.security.protocol.map": mapped,
        }
        kept = [line for line in config.read_text().splitlines() if line.partition("=")[0] not in lines]
        new = [f"{name}={value}" for name, value in lines.items() if value is not None]
        config.write_text("\n".join([*kept, *new]) + "\n")


def listeners(hosts: Mapping[str, str], ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{host}:{ports[name]}" for name, host in hosts.items())


@contextlib.contextmanager
def odradek_on(hosts: Mapping[str, str], directory: pathlib.Path) -> Iterator[dict[str, int]]:
    ports = {name: reference.free_port() for name in hosts}
    mapped = ",".join(f"{name}:PLAINTEXT" for name in hosts)
    command = [sys.executable, "-m", "odradek", "serve", "--data-dir", str(directory)]
    for setting in (f"listeners={listeners(hosts, ports)}", f"listener.security.protocol.map={mapped}"):
        command += ["--set", setting]
    log = directory.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        reference.wait_until_open(ports["IPV4"], process, log)
        yield ports
    finally:
        process.terminate()
        process.wait(30)


def connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=SECONDS).close()
    except OSError:
        return False
    return True


def hosts_told(side_name: str, address: str, port: int) -> list[str]:
    """By Metadata, DescribeCluster and FindCoordinator; each with this port."""
    side = Side(side_name, f"{IPV4}:{port}")
    side.host = address
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            told = [
                *side.ask(MetadataRequest(topics=[]), 9).brokers,
                *side.ask(DescribeClusterRequest(), 0).brokers,
                *side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators,
            ]
            # Kafka is making the coordinator's topic behind its first answers.
            if told[-1].error_code == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert [one.port for one in told] == [port] * 3
        return [one.host for one in told]
    finally:
        side.close()


pytestmark = pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")


def test_every_way_to_write_a_host_is_served_for_the_families_that_kafka_serves(
    tmp_path: pathlib.Path,
) -> None:
    with KafkaOn(HOSTS, None) as kafka, odradek_on(HOSTS, tmp_path / "data") as ports:
        for name, host in HOSTS.items():
            families = {}
            for address in (IPV4, IPV6, "localhost"):
                theirs = connects(address, kafka.ports[name])
                ours = connects(address, ports[name])
                families[address] = (theirs, ours)
                if host.lower() == "localhost":
                    # Ours is served for both, as clients may try either.
                    assert ours, (host, address)
                else:
                    assert ours == theirs, (host, address)
            if name in EVERY_INTERFACE:
                assert families == dict.fromkeys(families, (True, True)), host
            reachable = [address for address, served in families.items() if all(served)]
            for address in reachable:
                theirs_told = hosts_told("kafka", address, kafka.ports[name])
                ours_told = hosts_told("odradek", address, ports[name])
                if name in NAMES:
                    assert ours_told == theirs_told == [host] * 3, (host, address)
                elif address != "localhost":
                    # Where Kafka tells what is written, ours tells the address at which the client came in.
                    assert ours_told == [address] * 3, (host, address)
                    assert theirs_told == ours_told or name != "IPV4", (host, address)
                    assert theirs_told == [host.strip("[]") or theirs_told[0]] * 3, (host, address)


def test_0_0_0_0_is_served_for_both_families(tmp_path: pathlib.Path) -> None:
    hosts = {"IPV4": IPV4, "IPV4_ANY": "0.0.0.0"}
    kafka = KafkaOn(hosts, None)
    with pytest.raises(RuntimeError, match=r"0\.0\.0\.0"):
        kafka.start()
    kafka.stop()
    with KafkaOn(hosts, "IPV4_ANY://elsewhere:1") as kafka, odradek_on(hosts, tmp_path / "data") as ports:
        for address in (IPV4, IPV6, "localhost"):
            assert connects(address, kafka.ports["IPV4_ANY"])
            assert connects(address, ports["IPV4_ANY"])
        for address in (IPV4, IPV6):
            assert hosts_told("odradek", address, ports["IPV4_ANY"]) == [address] * 3
