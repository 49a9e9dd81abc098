"""Spark at a listener with TLS, SCRAM and ACLs: our format and Spark's connector with the same options."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import odradek.spark
from compat_tests.secured import PASSWORD, secured_odradek
from odradek.client.client_error import error_codes
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.spark import cli
from odradek.spark.client_options import settings_of
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS = {"admin": "pw-of-admin", "ann": PASSWORD}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, COPY, DENIED = "open-orders", "open-copies", "closed"
ROWS = 40
FORMATS = ("odradek", "kafka")

RULES = (
    (ResourceType.TOPIC, "open-", Operation.READ),
    (ResourceType.TOPIC, "open-", Operation.WRITE),
    # The sink's own, see docs/spark.md.
    (ResourceType.TOPIC, "odradek-spark-markers", Operation.CREATE),
    (ResourceType.TOPIC, "odradek-spark-markers", Operation.READ),
    (ResourceType.TOPIC, "odradek-spark-markers", Operation.WRITE),
    (ResourceType.TOPIC, "odradek-spark-markers", Operation.DESCRIBE_CONFIGS),
    (ResourceType.TRANSACTIONAL_ID, "odradek-spark-", Operation.WRITE),
    (ResourceType.GROUP, "odradek-spark-", Operation.READ),
)
"""What ann may do; every name is a prefix."""


class Secured:
    """Options of a user at the broker."""

    def __init__(self, bootstrap: str, ca: pathlib.Path) -> None:
        self.bootstrap, self.ca = bootstrap, ca

    def options(self, user: str = "ann", password: str | None = None) -> dict[str, str]:
        word = password or PASSWORDS[user]
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{LOGIN} required username="{user}" password="{word}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.ca),
        }

    def command_config(self, directory: pathlib.Path) -> str:
        """The same for Kafka's tools, and for ours."""
        file = directory / "ann.properties"
        lines = (f"{name.removeprefix('kafka.')}={value}\n" for name, value in self.options().items())
        file.write_text("".join(lines))
        return str(file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    ca, keys = directory / "ca.pem", directory / "broker.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("127.0.0.1", common_name="broker").private_key_and_cert_chain_pem.write_to_path(
        str(keys)
    )
    options = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
    }
    with secured_odradek(directory / "data", options, listener="SASL_SSL") as broker:
        found = Secured(f"127.0.0.1:{broker.port}", ca)
        with Cluster(settings_of(found.options("admin"))) as admin:
            prepare(admin)
        yield found


def prepare(admin: Cluster) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in (TOPIC, COPY, DENIED)
    ]
    rules = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.PREFIXED,
            principal="User:ann",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for kind, name, operation in RULES
    ]
    for request in (
        CreateTopicsRequest(topics=topics, timeout_ms=30_000),
        CreateAclsRequest(creations=rules),
    ):
        assert not list(error_codes(admin.ask(ANY_NODE, request)))


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    odradek.spark.register(spark)
    return spark


def read(spark: SparkSession, secured: Secured, kind: str, topic: str, **more: Any) -> Any:
    options = {**secured.options(), "subscribe": topic, "kafka.isolation.level": "read_committed", **more}
    return spark.read.format(kind).options(**options).load()


def numbers(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def all_causes(error: BaseException) -> str:
    """Everything that is said of a failure, Java's stack traces included."""
    return f"{error!r} {error} {error.__cause__!r} {error.__context__!r}"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_is_written_read_and_streamed_over_tls_with_scram_and_acls(
    session: SparkSession, secured: Secured, kind: str, tmp_path: pathlib.Path
) -> None:
    before = numbers(read(session, secured, kind, TOPIC))
    rows = session.range(len(before), len(before) + ROWS).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format(kind).options(**secured.options(), topic=TOPIC).mode("append").save()
    written = sorted([*before, *range(len(before), len(before) + ROWS)])
    assert numbers(read(session, secured, kind, TOPIC)) == written

    copied = numbers(read(session, secured, kind, COPY))
    stream = session.readStream.format(kind).options(
        **secured.options(), subscribe=TOPIC, startingOffsets="earliest"
    )
    checkpoint = tmp_path / "checkpoint"
    query = (
        stream.load()
        .selectExpr("key", "value")
        .writeStream.format(kind)
        .options(**secured.options(), topic=COPY, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with contextlib.ExitStack() as ending:
        ending.callback(query.stop)
        assert query.awaitTermination(120)
    assert numbers(read(session, secured, kind, COPY)) == sorted([*copied, *written])

    told = "".join(progress.json for progress in query.recentProgress)
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    told += "".join(path.read_text("latin-1") for path in files)
    assert len(files) > 3
    assert PASSWORDS["ann"] not in told


@pytest.mark.parametrize("kind", FORMATS)
def test_no_plan_shows_a_password(
    session: SparkSession, secured: Secured, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(session, secured, kind, TOPIC)
    for mode in ("simple", "extended", "formatted"):
        frame.explain(mode=mode)
    plans = capsys.readouterr().out
    assert plans.count("Physical Plan") == 3
    assert PASSWORDS["ann"] not in plans


def test_a_topic_that_the_user_may_not_see_is_one_clear_sentence(
    session: SparkSession, secured: Secured
) -> None:
    with pytest.raises(Exception, match="reading the metadata of topic closed was refused") as caught:
        read(session, secured, "odradek", DENIED).collect()
    assert "TOPIC_AUTHORIZATION_FAILED" in str(caught.value)
    assert PASSWORDS["ann"] not in all_causes(caught.value)
    rows = session.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        rows.write.format("odradek").options(**secured.options(), topic=DENIED).mode("append").save()
    assert PASSWORDS["ann"] not in all_causes(caught.value)


def test_a_wrong_password_is_one_clear_sentence_at_once(session: SparkSession, secured: Secured) -> None:
    options = secured.options(password="hidden-word-of-nobody") | {"subscribe": TOPIC}
    with pytest.raises(Exception, match=r"refuses the user 'ann' \(SASL_AUTHENTICATION_FAILED") as caught:
        session.read.format("odradek").options(**options).load().collect()
    assert "hidden-word-of-nobody" not in all_causes(caught.value)


def test_an_option_that_cannot_be_honoured_is_refused_by_name(
    session: SparkSession, secured: Secured
) -> None:
    options = secured.options() | {"subscribe": TOPIC, "kafka.sasl.login.class": "org.example.Login"}
    with pytest.raises(Exception, match=r"kafka\.sasl\.login\.class is not taken"):
        session.read.format("odradek").options(**options).load().collect()


def test_the_jobs_take_the_file_of_kafkas_tools(
    session: SparkSession, secured: Secured, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = session.range(5).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("odradek").options(**secured.options(), topic=TOPIC).mode("append").save()
    report = tmp_path / "report.json"
    words = ["-b", secured.bootstrap, "--command-config", secured.command_config(tmp_path)]
    more = ["--quiet", "--output", "json", "--report", str(report)]
    table = ["--table", str(tmp_path / "table")]
    assert cli.main(["archive", *words, "--topic", TOPIC, *table, *more]) == 0
    assert cli.main(["verify", *words, "--topic", TOPIC, *table, *more]) == 0
    assert cli.main(["profile", *words, "--topic", DENIED, *more]) == 1
    shown = capsys.readouterr()
    assert "TOPIC_AUTHORIZATION_FAILED" in shown.err
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "ann.properties"]
    assert len(files) > 3
    told = shown.out + shown.err + "".join(path.read_text("latin-1") for path in files)
    assert PASSWORDS["ann"] not in told
