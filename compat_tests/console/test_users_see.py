"""Three users with ACLs see in the console what kafka-python and librdkafka's AdminClient see as them, and
may change there what these may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Resource
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePatternFilter,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.admin import ResourceType as KafkaResource
from kafka.errors import BrokerResponseError

import odradek
from odradek.client.admin.acls import Acl, add_acls
from odradek.client.admin.description import describe_log_dirs
from odradek.client.admin.quotas import alter_quotas, describe_quotas
from odradek.client.admin.tokens import describe_tokens
from odradek.client.admin.users import put_user
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, coordinator_of
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.console.app import make_app
from odradek.embedding.free_port import free_port
from odradek.security.client_security import ClientSecurity
from odradek.wire.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.client.topics import Transactions, create_topic, produce
from tests.console.browsers import Browser, Page
from tests.console.conftest import NO_RETENTION
from tests.console.test_safety import with_login

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = {"ann": "the password of ann", "bob": "the password of bob", "eve": "the password of eve"}
"""ann may do all; bob uses the topic `shown`, its group and its transaction; eve describes and alters the
cluster, and sees no topic."""
GIVEN = (
    ("bob", ResourceType.TOPIC, "shown", Operation.READ),
    ("bob", ResourceType.TOPIC, "bob-", Operation.ALL),
    ("bob", ResourceType.GROUP, "billing", Operation.DESCRIBE),
    ("bob", ResourceType.GROUP, "bob-", Operation.ALL),
    ("bob", ResourceType.TRANSACTIONAL_ID, "pay", Operation.DESCRIBE),
    ("eve", ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
    ("eve", ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER),
    ("eve", ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS),
)
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with something to see of each kind."""
    ports = {"PLAINTEXT": free_port(), "SASL_PLAINTEXT": free_port()}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
        **NO_RETENTION,
    }
    with (
        odradek.Broker(options=options),
        Cluster(ClientSettings(f"127.0.0.1:{ports['PLAINTEXT']}", retry_ms=1)) as cluster,
    ):
        for name in ("shown", "hidden"):
            create_topic(cluster, partitions=2, name=name)
            produce(cluster, name, 0, [b"v"] * 3)
        commit(cluster, "billing", {("shown", 0): (1, "")})
        commit(cluster, "secret", {("hidden", 0): (1, "")})
        Transactions(cluster, "pay").write("shown", 0, [b"v"])
        Transactions(cluster, "hide").write("hidden", 1, [b"v"])
        beat = ShareGroupHeartbeatRequest(
            group_id="parcels", member_id="m", member_epoch=0, subscribed_topic_names=["shown"]
        )
        assert cluster.ask(coordinator_of("group", "parcels"), beat).error_code == 0
        put_user(cluster, "zoe", "SCRAM-SHA-256", "secret", 4096)
        alter_quotas(cluster, {"user": "zoe"}, {"producer_byte_rate": 1024})
        rules = [
            Acl(
                kind,
                name,
                PatternType.PREFIXED if name.endswith("-") else PatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                Permission.ALLOW,
            )
            for user, kind, name, operation in GIVEN
        ]
        assert add_acls(cluster, rules) == []
        for user in USERS:
            for side in ("console", "client"):
                create_topic(cluster, name=f"{user}-{side}")
                commit(cluster, f"{user}-{side}", {(f"{user}-{side}", 0): (0, "")})
        # Topics of ann and eve have no rules: only who may do all sees them.
        yield f"127.0.0.1:{ports['SASL_PLAINTEXT']}"


class Person:
    """A user with a browser and with the clients of others."""

    def __init__(self, address: str, user: str) -> None:
        self.user, self.address = user, address
        self.browser = Browser(make_app(with_login(address)))
        self.kafka = kafka.KafkaAdminClient(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=USERS[user],
        )
        self.confluent = AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": USERS[user],
            }
        )

    def page(self, url: str) -> Page:
        response = self.browser.get(url)
        assert response.status_code in (200, 403, 404, 502), (url, response.status_code)
        return Page(response.text)

    def sent(self, path: str, **fields: str) -> Page:
        response = self.browser.post(path, fields)
        if response.status_code == 303:
            response = self.browser.get(response.headers["location"])
        return Page(response.text)

    def own(self, work: Callable[[Cluster], Any]) -> Any:
        """The result of our client, for what the others have no call."""
        jaas = f'{PLAIN} username="{self.user}" password="{USERS[self.user]}";'
        options = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
        }
        settings = ClientSettings(self.address, retry_ms=1, security=ClientSecurity.of(options))
        with Cluster(settings) as cluster:
            return work(cluster)


@pytest.fixture(scope="module", params=USERS)
def person(address: str, request: pytest.FixtureRequest) -> Iterator[Person]:
    found = Person(address, request.param)
    with found.browser:
        token = found.browser.token("/login")
        fields = {"user": found.user, "password": USERS[found.user]}
        assert found.browser.post("/login", fields, token=token).status_code == 303
        yield found
    found.kafka.close()


def outcome(work: Callable[[], Any]) -> Any:
    """The result, or the name of Kafka's error."""
    try:
        return work()
    except BrokerResponseError as error:
        return ErrorCode(error.errno).name
    except KafkaException as error:
        return ErrorCode(error.args[0].code()).name
    except ClientError as error:
        return error.code.name if error.code is not None else str(error)


def same(page: Page, expected: Any, rows: Callable[[Page], Any]) -> None:
    """The page has the rows, or tells the error."""
    if isinstance(expected, str):
        assert expected in page.text, (expected, page.text)
        assert not rows(page), "nothing is shown beside the error"
    else:
        assert rows(page) == expected


def body(page: Page, width: int) -> list[list[str]]:
    """Rows of the body of a table with so many columns."""
    heads = {"Transactional id", "Topic", "Group", "User", "Principal", "Broker", "Partition", "Part", "Of"}
    return [row for row in page.body_rows if len(row) == width and row[0] not in heads | {"Feature", "Node"}]


# What they see ----------------------------------------------------------------------------------------


def test_topics_and_groups(person: Person) -> None:
    topics = sorted(name for name in person.kafka.list_topics() if not name.startswith("__"))
    assert [row[0] for row in body(person.page("/topics"), 6)] == topics
    groups = sorted((one["group_id"], one["group_type"].lower()) for one in person.kafka.list_groups())
    assert sorted((row[0], row[2]) for row in body(person.page("/groups"), 7)) == groups
    assert {"ann": ("secret", "classic") in groups, "bob": len(groups) == 3, "eve": len(groups) >= 5}[
        person.user
    ]


def test_transactions(person: Person) -> None:
    listed = person.kafka.list_transactions()
    expected = sorted(
        (one.transactional_id, one.state.value, str(one.producer_id))
        for found in listed.values()
        for one in found
    )
    rows = body(person.page("/transactions"), 7)
    assert sorted((row[0], row[1], row[4]) for row in rows) == expected
    assert {"ann": 2, "bob": 1, "eve": 0}[person.user] == len(expected)


@pytest.mark.parametrize("name", ["pay", "hide"])
def test_one_transaction(person: Person, name: str) -> None:
    found = outcome(lambda: person.kafka.describe_transactions([name])[name])
    page = person.page(f"/transaction?id={name}")
    if isinstance(found, str):
        assert found in page.text
        assert "shown" not in page.text
        assert "hidden" not in page.text
    else:
        assert found.state.value in page.text
        shown = {(row[0], int(row[1])) for row in body(page, 7)}
        assert shown == {(one.topic, one.partition) for one in found.topic_partitions}


@pytest.mark.parametrize("topic", ["shown", "hidden"])
def test_producers(person: Person, topic: str) -> None:
    partitions = [kafka.TopicPartition(topic, number) for number in (0, 1)]

    def told() -> Any:
        found = person.kafka.describe_producers(partitions, broker_id=1)
        return sorted(
            [
                str(key.partition),
                str(one.producer_id),
                str(one.producer_epoch),
                str(one.last_sequence),
                "-"
                if one.current_transaction_start_offset < 0
                else str(one.current_transaction_start_offset),
            ]
            for key, of in found.items()
            for one in of.active_producers
        )

    page = person.page(f"/topics/{topic}/producers")
    expected = outcome(told)
    if expected == "UNKNOWN_TOPIC_OR_PARTITION":
        expected = "TOPIC_AUTHORIZATION_FAILED"
    same(page, expected, lambda page: sorted(row[:4] + row[5:6] for row in body(page, 7)))


def test_a_share_group_is_shown_to_whom_it_is_listed(person: Person) -> None:
    listed = {one["group_id"] for one in person.kafka.list_groups()}
    page = person.page("/share-group?id=parcels")
    is_allowed = person.user == "ann"
    assert ("GROUP_AUTHORIZATION_FAILED" not in page.text) == is_allowed
    if is_allowed:
        assert "parcels" in listed
        assert "shown" in page.text


def test_users(person: Person) -> None:
    def told() -> Any:
        found = person.kafka.describe_user_scram_credentials()
        return sorted(
            [user, one["mechanism"] if isinstance(one["mechanism"], str) else one["mechanism"].name]
            for user, of in found.items()
            for one in of["credential_infos"]
        )

    def names(page: Page) -> Any:
        return sorted([row[0], row[1]] for row in body(page, 3))

    expected = outcome(told)
    if not isinstance(expected, str):
        expected = [[user, name.replace("_", "-")] for user, name in expected]
    same(person.page("/users"), expected, names)
    assert (expected == "CLUSTER_AUTHORIZATION_FAILED") == (person.user == "bob")


def test_acls(person: Person) -> None:
    every = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(
            KafkaResource.ANY, None, kafka.admin.ACLResourcePatternType.ANY
        ),
    )

    def told() -> Any:
        found = person.kafka.describe_acls(every)
        acls, error = found if isinstance(found, tuple) else (found, None)
        if error is not None and getattr(error, "errno", 0):
            raise error
        return sorted(
            [
                one.principal,
                one.host,
                one.permission_type.name,
                one.operation.name,
                one.resource_pattern.resource_type.name,
                one.resource_pattern.resource_name,
                one.resource_pattern.pattern_type.name,
            ]
            for one in acls
        )

    expected = outcome(told)
    same(person.page("/acls"), expected, lambda page: sorted(body(page, 7)))
    assert (expected == "CLUSTER_AUTHORIZATION_FAILED") == (person.user == "bob")


def test_quotas_and_tokens(person: Person) -> None:
    """The others have no call for these: our client asks as the user."""

    def quotas(cluster: Cluster) -> Any:
        return [
            [" ".join(f"{kind}={name}" for kind, name in one.entity.items()), key, f"{value:,.0f}"]
            for one in describe_quotas(cluster, {})
            for key, value in one.quotas.items()
        ]

    expected = outcome(lambda: person.own(quotas))
    same(person.page("/quotas"), expected, lambda page: [row[:3] for row in body(page, 4)])
    tokens = outcome(lambda: person.own(describe_tokens))
    text = person.page("/tokens").text
    assert tokens in text if isinstance(tokens, str) else "no delegation tokens" in text


def test_nodes(person: Person) -> None:
    described = person.kafka.describe_cluster()
    rows = body(person.page("/brokers"), 11)
    assert [row[:2] for row in rows] == [
        [str(one["broker_id"]), f"{one['host']}:{one['port']}"] for one in described["brokers"]
    ]
    partitions = [
        (topic["name"], one) for topic in person.kafka.describe_topics() for one in topic["partitions"]
    ]
    led = sum(one["leader_id"] == 1 for _, one in partitions)
    assert [row[6] for row in rows] == [f"{led:,}" if partitions else "0"]
    found, url = [], "/brokers/replicas"
    while url:
        page = person.page(url)
        found += [(row[0], int(row[1])) for row in body(page, 6)]
        url = next((one["href"] for one in page.all("a", rel="next")), None)
    assert sorted(found) == sorted((name, one["partition_index"]) for name, one in partitions)
    moves = outcome(person.kafka.list_partition_reassignments)
    text = person.page("/brokers/moves").text
    assert moves in text if isinstance(moves, str) else "Nothing is being moved" in text


def test_log_directories(person: Person) -> None:
    """Java's client asks for all topics, and so does the console; kafka-python for those that the user sees,
    which are none of eve's, though she may know of all replicas."""

    def told() -> Any:
        return [[one.path, str(one.replicas)] for one in person.own(describe_log_dirs)]

    def told_of_topics() -> Any:
        found = [one for broker in person.kafka.describe_log_dirs() for one in broker["log_dirs"]]
        return [[one["log_dir"], str(sum(len(of["partitions"]) for of in one["topics"]))] for one in found]

    expected = outcome(told)
    if person.user == "ann":
        # kafka-python tells bob that there are none, where the response has an error.
        assert outcome(told_of_topics) == expected
    assert (expected == "CLUSTER_AUTHORIZATION_FAILED") == (person.user == "bob")
    same(
        person.page("/brokers/log-dirs"),
        expected,
        lambda page: [[row[1], row[3].replace(",", "")] for row in body(page, 7)],
    )


def test_quorum_and_features(person: Person) -> None:
    def told() -> Any:
        (topic,) = person.kafka.describe_metadata_quorum()["topics"]
        (one,) = topic["partitions"]
        return sorted(str(voter["replica_id"]) for voter in [*one["current_voters"], *one["observers"]])

    same(
        person.page("/brokers/quorum"),
        outcome(told),
        lambda page: sorted(row[0] for row in body(page, 7)),
    )
    features = person.kafka.describe_features()
    rows = {row[0]: row[1] for row in body(person.page("/brokers/features"), 4)}
    assert rows.keys() == features.keys()
    plain = {name: str(of["finalized"][1]) for name, of in features.items() if name != "metadata.version"}
    assert {name: level for name, level in rows.items() if name != "metadata.version"} == plain


# What they may change ---------------------------------------------------------------------------------


def refused(page: Page) -> str | None:
    """The name of the error that the page tells."""
    return next((code.name for code in ErrorCode if f"refused: {code.name} " in page.text), None)


def through(work: Callable[[], Any]) -> str | None:
    """The name of the error that a client tells."""
    result = outcome(work)
    return result if isinstance(result, str) else None


def test_topics_are_made_grown_and_deleted_by_whom_clients_let(person: Person) -> None:
    user = person.user

    def create() -> None:
        person.kafka.create_topics({f"{user}-new-client": {"num_partitions": 1}})

    made = person.sent("/create-topic/send", name=f"{user}-new-console", do="create")
    assert refused(made) == through(create)
    grown = person.sent("/topic/add-partitions", topic=f"{user}-console", partitions="2", do="add")
    is_allowed = refused(grown) is None
    assert is_allowed == (person.user != "eve")
    told = through(lambda: person.kafka.create_partitions({f"{user}-client": 2}))
    assert (told is None) == is_allowed
    gone = person.sent("/topic/delete", topic=f"{user}-new-console", typed=f"{user}-new-console")
    told = through(lambda: person.kafka.delete_topics([f"{user}-new-client"]))
    assert (refused(gone) is None) == (told is None)
    topics = set(person.kafka.list_topics())
    assert (f"{user}-new-console" in topics) == (f"{user}-new-client" in topics)


def test_groups_are_deleted_by_whom_clients_let(person: Person) -> None:
    user = person.user
    deleted = person.sent("/group/delete", id=f"{user}-console", name=f"{user}-console")
    futures = person.confluent.delete_consumer_groups([f"{user}-client"])
    told = through(lambda: futures[f"{user}-client"].result(TIMEOUT_S))
    assert refused(deleted) == told
    assert (told is None) == (user != "eve")


def test_rules_and_users_are_made_by_whom_clients_let(person: Person) -> None:
    user = person.user
    binding = AclBinding(
        Resource.TOPIC,
        f"{user}-rule",
        Pattern.LITERAL,
        "User:x",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    told = through(lambda: person.confluent.create_acls([binding])[binding].result(TIMEOUT_S))
    page = person.sent(
        "/acls/add", principal="User:x", operation="READ", name=f"{user}-rule-console", type="TOPIC", do="add"
    )
    assert refused(page) == told
    upsertion = UserScramCredentialUpsertion(f"{user}-x", ScramMechanism.SCRAM_SHA_256, "pw", iterations=4096)
    result = outcome(lambda: person.kafka.alter_user_scram_credentials([upsertion]))
    is_allowed = isinstance(result, dict) and result[f"{user}-x"] is None
    page = person.sent(
        "/users/set",
        user=f"{user}-y",
        mechanism="SCRAM-SHA-256",
        password="pw",
        again="pw",
        iterations="4096",
    )
    assert (refused(page) is None) == is_allowed == (user != "bob")
