"""A broker stops trusting an authority while it serves: whoever has a certificate of it gets no connection
any more, and the connections that stand live on, as in Kafka."""

import contextlib
import os
import ssl
import time
from dataclasses import dataclass

import pytest

from odradek import Broker
from odradek.embedding.free_port import free_port
from odradek.server.network import tls_reload
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest
from tests.raw_client import RawClient
from tests.server.tls_ends import Authority, chain_text

PATIENCE_S = 30
BROKER, SET = 4, 0


@dataclass
class Stage:
    """A broker whose listener SEALED trusts two authorities, by a file."""

    broker: Broker
    port: int
    path: object
    kept: Authority
    removed: Authority

    def context_of(self, authority, version):
        """Of a client with a certificate of this authority."""
        context = self.kept.client_context()
        context.minimum_version = context.maximum_version = version
        authority.issue("client", common_name="client").configure_cert(context)
        return context

    def connect(self, context, session=None):
        client = RawClient(self.port, timeout_s=PATIENCE_S)
        try:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost", session=session)
        except BaseException:
            client.close()
            raise
        return client

    def is_let_in(self, context, session=None):
        """With TLS 1.3 the refusal comes after the client's own part of the handshake."""
        try:
            with contextlib.closing(self.connect(context, session)) as client:
                return is_served(client)
        except (ssl.SSLError, EOFError, ConnectionResetError, BrokenPipeError):
            return False

    def remove_in_file(self):
        write(self.path, self.kept.text)

    def remove_by_request(self):
        other = self.path.with_name("other.pem")
        write(other, self.kept.text)
        change = AlterableConfig(
            name="listener.name.sealed.ssl.truststore.location", config_operation=SET, value=str(other)
        )
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
        with RawClient(self.broker.port) as client:
            answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0


def is_served(client):
    return len(client.ask(MetadataRequest(topics=[]), 9).brokers) == 1


def write(path, text):
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(tls_reload, "POLL_MS", 50)
    kept, removed = Authority(), Authority()
    path, keys = tmp_path / "trust.pem", tmp_path / "keys.pem"
    write(path, kept.text + removed.text)
    issued = kept.issue("localhost", "127.0.0.1", common_name="broker")
    keys.write_text(issued.private_key_pem.bytes().decode() + chain_text(issued))
    keys.chmod(0o600)
    port, plain = free_port(), free_port()
    options = {
        "listeners": f"ADMIN://127.0.0.1:{plain},SEALED://127.0.0.1:{port}",
        "listener.security.protocol.map": "ADMIN:PLAINTEXT,SEALED:SSL",
        "inter.broker.listener.name": "ADMIN",
        "listener.name.sealed.ssl.client.auth": "required",
        "listener.name.sealed.ssl.keystore.type": "PEM",
        "listener.name.sealed.ssl.keystore.location": str(keys),
        "listener.name.sealed.ssl.truststore.type": "PEM",
        "listener.name.sealed.ssl.truststore.location": str(path),
    }
    with Broker(options=options, port=plain) as broker:
        yield Stage(broker, port, path, kept, removed)


@pytest.mark.parametrize("remove", [Stage.remove_in_file, Stage.remove_by_request])
def test_a_client_of_a_removed_authority_is_refused(stage, remove):
    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    before = [stage.context_of(stage.removed, version) for version in versions]
    good = [stage.context_of(stage.kept, version) for version in versions]
    with contextlib.ExitStack() as ending:
        standing = [ending.enter_context(contextlib.closing(stage.connect(context))) for context in before]
        assert all(map(is_served, standing))
        sessions = [client.socket.session for client in standing]
        assert all(map(stage.is_let_in, [*before, *good]))
        remove(stage)
        deadline_s = time.monotonic() + PATIENCE_S
        while stage.is_let_in(before[0]) and time.monotonic() < deadline_s:
            pass
        assert not any(map(stage.is_let_in, before))
        assert not any(map(stage.is_let_in, before, sessions)), "nor with a session of before"
        assert not stage.is_let_in(stage.context_of(stage.removed, versions[1])), "nor with a new certificate"
        assert all(map(stage.is_let_in, good))
        assert all(map(is_served, standing)), "connections that stand live on"
