"""`odradek users` says what the AdminClient of librdkafka says; a user that it makes logs in."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.clients import wait_until
from compat_tests.secured import SecuredKafka, secured_odradek

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if request.config.getoption("--broker") == "kafka":
            yield stack.enter_context(
                SecuredKafka(version=request.config.getoption("--kafka-version"))
            ).bootstrap_servers
        else:
            directory = tmp_path_factory.mktemp("secured")
            yield stack.enter_context(secured_odradek(directory)).bootstrap_servers


def admin_as(bootstrap: str, user: str, password: str, mechanism: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )


def described(admin: AdminClient) -> Rows:
    found = admin.describe_user_scram_credentials(None, request_timeout=30).result(30)
    return sorted(
        (
            {
                "user": user,
                "mechanism": one.mechanism.name.replace("_", "-"),
                "iterations": one.iterations,
            }
            for user, described in found.items()
            for one in described.scram_credential_infos
        ),
        key=lambda row: (row["user"], row["mechanism"]),
    )


def test_users_are_those_of_the_admin_client(
    rows: Callable[..., Rows], secured: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "admin.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=admin\nsasl.password=pw-of-admin\n"
    )

    def users(*arguments: str) -> Rows:
        return rows("users", *arguments, "--command-config", str(file), bootstrap=secured)

    admin = admin_as(secured, "admin", "pw-of-admin", "PLAIN")
    before = described(admin)
    assert users("list") == before
    assert len(before) == 6
    monkeypatch.setenv("ODRADEK_PASSWORD", "pw of eve")
    eve = {"user": "eve", "mechanism": "SCRAM-SHA-512", "iterations": 5000}
    added = users("add", "eve", "--mechanism", "SCRAM-SHA-512", "--iterations", "5000")
    assert added == [eve]
    wait_until(lambda: eve in described(admin), "the user is there")
    assert users("list") == described(admin)
    # A failed login would be a timeout.
    assert described(admin_as(secured, "eve", "pw of eve", "SCRAM-SHA-512")) == [*before, eve]
    assert users("remove", "eve", "--mechanism", "SCRAM-SHA-512") == [eve]
    wait_until(lambda: described(admin) == before, "the user is gone")
