"""Kafka's tools of 4.3, and those of 3.9 for users, quotas, rules and tokens, over TLS and SCRAM, with ACLs:
done and shown the same by Kafka and here."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.secured import PASSWORD, SecuredKafka, secured_odradek
from compat_tests.security.certificates import Authority
from compat_tests.security.test_tools import CONFIGS, GROUPS, TOOLS, TOPICS, Pair, Side
from odradek.client.client_error import ClientError, error_codes
from odradek.client.cluster import ANY_NODE, Cluster, coordinator_of
from odradek.client.settings import ClientSettings
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOKENS = f"{TOOLS}.DelegationTokenCommand"
VERSION = reference.CURRENT
LISTENER = "SASL_SSL"
HMAC = r"[A-Za-z0-9+/]{86}=="
IN_ORDER = (
    (r"(SCRAM-SHA-512=\w+=\d+), (SCRAM-SHA-256=\w+=\d+)", r"\2, \1"),
    (r"^ ?\t", ""),
    (r"(only supports operations) .*", r"\1 THESE"),
    (r" +$", ""),
)
"""Some orders are those of a hash table: Kafka's of mechanisms, the tool's of rules and operations."""
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS = {"admin": "pw-of-admin", "ann": PASSWORD}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def client_options(authority: Authority, user: str) -> dict[str, str]:
    return {
        "security.protocol": LISTENER,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{LOGIN} required username="{user}" password="{PASSWORDS[user]}";',
        **authority.trust_store("PEM"),
    }


@pytest.fixture(scope="module")
def users(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """Both brokers, as each user."""
    directory = tmp_path_factory.mktemp("secured")
    options = {
        **authority.key_store("PEM", "broker", authority.server()),
        **authority.trust_store("PEM"),
        "authorizer.class.name": STANDARD,
        # Kafka's controller is asked without a login.
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "delegation.token.secret.key": "a-secret",
    }
    files = {}
    for user in PASSWORDS:
        files[user] = directory / f"{user}.properties"
        lines = (f"{name}={value}\n" for name, value in client_options(authority, user).items())
        files[user].write_text("".join(lines))
    with (
        SecuredKafka(options, listener=LISTENER, host=shared_host()) as kafka,
        secured_odradek(directory / "data", options, listener=LISTENER) as ours,
    ):
        brokers = (
            ("Kafka", kafka.bootstrap_servers, kafka.data_dir),
            ("Odradek", ours.bootstrap_servers, ours.data_dir),
        )
        pairs = {
            user: Pair([Side(*broker, command_config=file) for broker in brokers])
            for user, file in files.items()
        }
        yield pairs


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def acls(version: str) -> str:
    return f"{TOOLS}.AclCommand" if version == reference.CURRENT else "kafka.admin.AclCommand"


@pytest.fixture
def admin(users: dict[str, Pair]) -> Pair:
    users["admin"].found.clear()
    return users["admin"]


@pytest.fixture
def ann(users: dict[str, Pair]) -> Pair:
    users["ann"].found.clear()
    return users["ann"]


def test_users_of_scram(admin: Pair, version: str) -> None:
    def run(words: str, shows: str = "", status: int = 0) -> None:
        admin.compare(version, CONFIGS, words, shows=shows, status=status, changes=IN_ORDER, unordered=True)

    carol = "--entity-type users --entity-name carol"
    run(f"--describe {carol}")
    run(f"--alter --add-config SCRAM-SHA-256=[password=one] {carol}", "Completed updating config for user")
    run(f"--describe {carol}", "SCRAM-SHA-256=iterations=4096")
    both = "SCRAM-SHA-256=[iterations=8192,password=two],SCRAM-SHA-512=[password=3]"
    run(f"--alter --add-config {both} {carol}", "DuplicateResource", 1)
    for one in both.split(",SCRAM"):
        run(f"--alter --add-config {'SCRAM' * one.startswith('-')}{one} {carol}")
    run(f"--describe {carol}", "SCRAM-SHA-256=iterations=8192")
    run("--describe --user carol", "SCRAM-SHA-512=iterations=4096")
    run("--describe --entity-type users", "carol")
    run(f"--alter --add-config SCRAM-SHA-256=[iterations=100,password=two] {carol}", status=1)
    run(f"--alter --add-config SCRAM-SHA-256=[iterations=99999,password=two] {carol}", status=1)
    run(f"--alter --add-config SCRAM-SHA-1=[password=two] {carol}", status=1)
    run("--alter --add-config SCRAM-SHA-256=[password=two] --entity-type users --entity-default", status=1)
    run(f"--alter --delete-config SCRAM-SHA-512 {carol}")
    run(f"--describe {carol}", "SCRAM-SHA-256=iterations=8192")
    run(f"--alter --delete-config SCRAM-SHA-512 {carol}", status=1)
    run(f"--alter --delete-config SCRAM-SHA-256 {carol}")
    run("--alter --delete-config SCRAM-SHA-256 --entity-type users --entity-name nobody", status=1)
    run(f"--describe {carol}")
    admin.check()


def test_quotas_of_users_clients_and_addresses(admin: Pair, version: str) -> None:
    def run(words: str, shows: str = "", status: int = 0) -> None:
        admin.compare(version, CONFIGS, words, shows=shows, status=status, changes=IN_ORDER, unordered=True)

    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=50"
    entities = (
        "--entity-type users --entity-name dora",
        "--entity-type users --entity-default",
        "--entity-type clients --entity-name app",
        "--entity-type clients --entity-default",
        "--entity-type users --entity-name dora --entity-type clients --entity-name app",
        "--entity-type users --entity-name dora --entity-type clients --entity-default",
        "--entity-type users --entity-default --entity-type clients --entity-default",
    )
    for entity in entities:
        run(f"--alter --add-config {rates} {entity}", "Completed updating")
        run(f"--describe {entity}", "producer_byte_rate=1024.0")
    run("--describe --user dora --client app", "request_percentage=50.0")
    run("--describe --entity-type users", "dora")
    run("--describe --entity-type clients", "app")
    run("--describe --entity-type users --entity-type clients", "dora")
    own = entities[0]
    run(f"--alter --add-config controller_mutation_rate=2.5 --delete-config request_percentage {own}")
    run(f"--describe {own}", "controller_mutation_rate=2.5")
    run(f"--alter --add-config producer_byte_rate=-1 {own}", status=1)
    run(f"--alter --add-config producer_byte_rate=much {own}", status=1)
    run(f"--alter --add-config nonsense=1 {own}", status=1)
    run(f"--alter --add-config connection_creation_rate=5 {own}", status=1)
    for entity in ("--entity-type ips --entity-name 192.0.2.7", "--entity-type ips --entity-default"):
        run(f"--alter --add-config connection_creation_rate=100 {entity}", "Completed updating")
        run(f"--describe {entity}", "connection_creation_rate=100.0")
    run("--describe --entity-type ips", "192.0.2.7")
    run("--describe --ip 192.0.2.7", "192.0.2.7")
    run(
        "--alter --add-config connection_creation_rate=1 --entity-type ips --entity-name no.such.host.",
        status=1,
    )
    run("--alter --add-config producer_byte_rate=1 --entity-type ips --entity-name 192.0.2.7", status=1)
    for entity in entities:
        deleted = "producer_byte_rate,consumer_byte_rate"
        run(f"--alter --delete-config {deleted} {entity}")
        run(f"--describe {entity}")
    for entity in ("--entity-type ips --entity-name 192.0.2.7", "--entity-type ips --entity-default"):
        run(f"--alter --delete-config connection_creation_rate {entity}")
    run("--describe --entity-type ips")
    admin.check()


def test_rules(admin: Pair, version: str) -> None:
    def run(words: str, shows: str = "", status: int = 0) -> None:
        admin.compare(
            version, acls(version), words, shows=shows, status=status, changes=IN_ORDER, unordered=True
        )

    ann = "--allow-principal User:ann"
    run("--list")
    run(f"--add {ann} --operation Read --operation Describe --topic ruled", "Adding ACLs")
    run(f"--add {ann} --producer --topic ruled --resource-pattern-type prefixed")
    run(f"--add {ann} --producer --idempotent --transactional-id t --topic ruled")
    run(f"--add {ann} --consumer --topic ruled --group *")
    run("--add --deny-principal User:* --deny-host 192.0.2.7 --topic *", "DENY")
    run(f"--add {ann} --cluster --operation All")
    of_bob = "--allow-principal User:bob --allow-host 192.0.2.8"
    run(f"--add {of_bob} --operation DescribeTokens --user-principal User:ann")
    run("--list", "User:ann")
    run("--list --topic ruled --resource-pattern-type match", "User:ann")
    run("--list --principal User:bob --user-principal *")
    run("--list --principal User:bob --group *")
    run(f"--add {ann} --operation Nonsense --topic ruled", status=1)
    run("--add --operation Read --topic ruled", status=1)
    run(f"--add {ann} --operation Create --group ruled", status=1)
    run(f"--remove --force {ann} --operation Describe --topic ruled")
    run("--remove --force --topic * --resource-pattern-type any")
    run("--remove --force --cluster")
    run("--remove --force --group *")
    run("--remove --force --transactional-id t")
    run("--remove --force --user-principal User:ann")
    run("--list")
    admin.check()


def commit(side: Side, authority: Authority, group: str, topic: str) -> None:
    """With our own client, at both brokers."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=0, committed_metadata="")
        for number in range(2)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    with Cluster(settings_of(side, client_options(authority, "admin"))) as cluster:
        answer = cluster.ask(coordinator_of("group", group), request, version_max=9)
    assert not list(error_codes(answer)), answer


def settings_of(side: Side, options: dict[str, str]) -> ClientSettings:
    return ClientSettings.from_options({**options, "bootstrap.servers": side.address})


@pytest.mark.parametrize("number", [0, 1], ids=["Kafka", "Odradek"])
def test_our_client_logs_in_with_a_delegation_token(admin: Pair, authority: Authority, number: int) -> None:
    side, options = admin.sides[number], client_options(authority, "admin")
    with Cluster(settings_of(side, options)) as cluster:
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        token = cluster.ask(ANY_NODE, request)
    assert token.error_code == 0
    login = f'{LOGIN} required username="{token.token_id}" password="%s" tokenauth=true;'

    def answers(password: str) -> bool:
        try:
            given = {**options, "sasl.jaas.config": login % password}
            with Cluster(settings_of(side, given)) as cluster:
                return isinstance(cluster.topics(), list)
        except ClientError as error:
            if "refuses the delegation token" not in str(error):
                raise
            return False

    wait_until(lambda: answers(base64.b64encode(token.hmac).decode()), "the broker knows the token")
    assert not answers("another")


A_TOKEN = (
    (HMAC, "HMAC"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d", "MINUTE"),
)


def test_tokens(admin: Pair, ann: Pair, version: str) -> None:
    def run(pair: Pair, words: str, shows: str = "", status: int = 0) -> None:
        pair.compare(version, TOKENS, words, shows=shows, status=status, changes=A_TOKEN)

    def create(pair: Pair, words: str, shows: str) -> None:
        """The word TOKEN stands for what each broker has made."""
        run(pair, f"--create --max-life-time-period 3600000 {words}", shows)
        for number, side in enumerate(pair.sides):
            (hmac,) = re.findall(HMAC, side.printed)
            for one in (admin, ann):
                one.sides[number].own["TOKEN"] = hmac
        shown(1)

    def shown(count: int) -> None:
        """A part of Kafka hears of changes a little later."""
        describe = [TOKENS, "--bootstrap-server", "BOOTSTRAP", "--describe", "--owner-principal", "User:ann"]
        for side in ann.sides:
            wait_until(
                lambda side=side: f"tokens : {count}" in side.run(version, describe)[1], f"{count} tokens"
            )

    create(ann, "--renewer-principal User:bob --renewer-principal User:carol", "[User:bob, User:carol]")
    for pair in (admin, ann):
        run(pair, "--describe")
        run(pair, "--describe --owner-principal User:ann", "HMAC")
    run(ann, "--describe --owner-principal User:admin", "tokens : 0")
    run(ann, "--renew --renew-time-period 60000 --hmac TOKEN", "Completed renew operation")
    run(ann, "--renew --renew-time-period -1 --hmac TOKEN", "Completed renew operation")
    run(admin, "--renew --renew-time-period -1 --hmac TOKEN", "DelegationTokenOwnerMismatchException", 1)
    run(admin, "--expire --expiry-time-period -1 --hmac TOKEN", "DelegationTokenOwnerMismatchException", 1)
    run(ann, "--expire --expiry-time-period 600000 --hmac TOKEN", "Completed expire operation")
    run(ann, "--expire --expiry-time-period -1 --hmac TOKEN", "Completed expire operation")
    shown(0)
    run(ann, "--renew --renew-time-period -1 --hmac TOKEN", "DelegationTokenNotFoundException", 1)
    run(ann, "--expire --expiry-time-period -1 --hmac TOKEN", "DelegationTokenNotFoundException", 1)
    run(ann, "--renew --renew-time-period -1 --hmac QUJD", "DelegationTokenNotFoundException", 1)
    create(admin, "--owner-principal User:ann", "User:ann")
    run(ann, "--describe --owner-principal User:ann", "User:admin")
    run(ann, "--expire --expiry-time-period -1 --hmac TOKEN", "Completed expire operation")
    shown(0)
    run(ann, "--create --max-life-time-period -1 --owner-principal User:bob", status=1)
    run(ann, "--create --max-life-time-period -1 --renewer-principal Group:bob", status=1)
    run(ann, "--create", status=1)
    for pair in (admin, ann):
        pair.check()


def test_topics_and_groups(admin: Pair, authority: Authority) -> None:
    def run(tool: str, words: str, shows: str = "", status: int = 0) -> None:
        admin.compare(VERSION, tool, words, shows=shows, status=status, unordered=True)

    run(TOPICS, "--create --topic sealed --partitions 2 --replication-factor 1", "Created topic")
    run(TOPICS, "--describe --topic sealed", "PartitionCount: 2")
    run(TOPICS, "--list", "sealed")
    for side in admin.sides:
        commit(side, authority, "readers", "sealed")
    run(GROUPS, "--list", "readers")
    run(GROUPS, "--describe --group readers", "sealed")
    run(GROUPS, "--describe --group readers --state", "Empty")
    run(GROUPS, "--reset-offsets --group readers --topic sealed --to-earliest --execute", "sealed")
    run(GROUPS, "--delete --group readers", "successful")
    run(GROUPS, "--list")
    run(TOPICS, "--delete --topic sealed")
    admin.check()


def test_who_may_nothing_is_refused_alike(ann: Pair, admin: Pair, authority: Authority) -> None:
    admin.compare(VERSION, TOPICS, "--create --topic hidden --partitions 2", shows="Created topic")
    for side in admin.sides:
        commit(side, authority, "hidden-readers", "hidden")
    admin.check()

    def run(tool: str, words: str, status: int = 0) -> None:
        ann.compare(VERSION, tool, words, status=status, unordered=True)

    run(TOPICS, "--list")
    run(TOPICS, "--describe --topic hidden", 1)
    run(TOPICS, "--create --topic more", 1)
    run(TOPICS, "--alter --topic hidden --partitions 9", 1)
    run(TOPICS, "--delete --topic hidden", 1)
    run(CONFIGS, "--describe --entity-type topics --entity-name hidden")
    run(CONFIGS, "--alter --add-config retention.ms=1 --entity-type topics --entity-name hidden", 1)
    run(CONFIGS, "--describe --entity-type users", 1)
    run(CONFIGS, "--alter --add-config SCRAM-SHA-256=[password=x] --entity-type users --entity-name ann", 1)
    run(CONFIGS, "--alter --add-config producer_byte_rate=1 --entity-type clients --entity-default", 1)
    run(CONFIGS, "--describe --entity-type ips", 1)
    run(acls(VERSION), "--list", 1)
    run(acls(VERSION), "--add --allow-principal User:ann --operation All --topic *", 1)
    run(GROUPS, "--list")
    run(GROUPS, "--describe --group hidden-readers")
    run(GROUPS, "--delete --group hidden-readers")
    ann.check()
    admin.compare(VERSION, TOPICS, "--delete --topic hidden")
    admin.check()
