"""Client metrics: who is asked for what, who may push, and what is remembered of whom."""

import itertools

import pytest

from odradek.coordinator.client_metrics import clients
from odradek.coordinator.client_metrics.clients import ClientMetrics, Sender
from odradek.coordinator.client_metrics.subscriptions import check_subscription, subscription_of
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.otlp import MetricPoint, MetricsPush
from odradek.wire.schema import ZERO_UUID

JAVA = Sender("payments", "apache-kafka-java", "4.3.1", "192.0.2.7", 50_000)
START_MS = 1_700_000_000_000
BYTES_MAX = 1000


class World:
    def __init__(self, **configs):
        ids = itertools.count(16)
        self.told = []
        self.metrics = ClientMetrics(lambda: next(ids).to_bytes(16, "big"), self.told.append)
        self.now_ms = START_MS
        self.follow(**configs)

    def follow(self, **configs):
        self.metrics.follow(configs)

    def subscribe(self, instance_id=ZERO_UUID, sender=JAVA):
        return self.metrics.subscribe(instance_id, sender, self.now_ms)

    def push(self, wanted, sender=JAVA, **changes):
        """The code of the refusal, or NONE."""
        arguments = {
            "subscription_id": wanted.subscription_id,
            "compression": 0,
            "size_bytes": 0,
            "bytes_max": BYTES_MAX,
            "is_last": False,
            **changes,
        }
        try:
            self.metrics.begin_push(wanted.instance_id, sender, self.now_ms, **arguments)
        except KafkaError as error:
            return error.code.name
        return "NONE"

    def pushed(self, wanted, value, sender=JAVA, text_bytes=100):
        """A push that is taken, with one value."""
        assert self.push(wanted, sender) == "NONE"
        point = MetricPoint("a", {}, value, None, False, 0)
        self.metrics.end_push(wanted.instance_id, MetricsPush({}, (point,), 0, text_bytes), self.now_ms)

    @property
    def values(self):
        """By client id."""
        return {
            one.client_id: [point.value for point in one.metrics] for one in self.metrics.values(self.now_ms)
        }


def code_of(call, *arguments):
    with pytest.raises(KafkaError) as refused:
        call(*arguments)
    return refused.value.code.name


def test_who_matches_nothing_is_asked_for_nothing():
    wanted = World().subscribe()
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


def test_a_client_is_asked_for_what_all_its_subscriptions_want_at_the_shortest_interval():
    world = World(
        one={"metrics": "org.a,org.b", "interval.ms": "2000"},
        two={"metrics": "org.b,org.c", "interval.ms": "1000"},
        other={"metrics": "org.d", "interval.ms": "100", "match": "client_id=orders"},
    )
    wanted = world.subscribe()
    assert (sorted(wanted.metrics), wanted.interval_ms) == (["org.a", "org.b", "org.c"], 1000)


def test_all_metrics_need_no_prefixes():
    assert World(one={"metrics": "org.a"}, all={"metrics": "*,org.b"}).subscribe().metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("", True),
        ("client_id=payments", True),
        ("client_id=pay", False),
        ("client_id=pay.*", True),
        ("client_id=orders,client_id=pay.*", True),
        ("client_id=pay.*,client_software_name=librdkafka", False),
        ("client_software_name = apache-.* , client_software_version = 4\\..*", True),
        ("client_source_address=192\\.0\\.2\\.7,client_source_port=5.*", True),
        ("client_instance_id=[A-Za-z0-9_-]{22}", True),
        ("client_instance_id=nobody", False),
    ],
)
def test_all_expressions_of_a_subscription_have_to_match(match, fits):
    assert bool(World(one={"metrics": "a", "match": match}).subscribe().metrics) is fits


def test_a_client_without_an_id_is_matched_by_no_expression_for_it():
    world = World(one={"metrics": "a", "match": "client_id=.*"})
    assert world.subscribe(sender=JAVA._replace(client_id=None)).metrics == ()


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"interval.ms": "99"}, "INVALID_REQUEST"),
        ({"interval.ms": "3600001"}, "INVALID_REQUEST"),
        ({"interval.ms": "soon"}, "INVALID_CONFIG"),
        ({"interval.ms": ""}, "INVALID_CONFIG"),
        ({"nonsense": "1"}, "INVALID_REQUEST"),
        ({"match": "client_id"}, "INVALID_CONFIG"),
        ({"match": "client_id="}, "INVALID_CONFIG"),
        ({"match": "client_id=a=b"}, "INVALID_CONFIG"),
        ({"match": "other=1"}, "INVALID_CONFIG"),
        ({"match": "client_id=("}, "INVALID_CONFIG"),
        ({"match": "client_id=a,"}, "INVALID_CONFIG"),
        ({"metrics": "a,,b"}, "INVALID_CONFIG"),
    ],
)
def test_settings_without_a_meaning_are_refused(configs, code):
    assert code_of(check_subscription, "s", configs) == code


def test_a_subscription_has_a_name():
    assert code_of(check_subscription, "", {}) == "INVALID_REQUEST"


def test_a_setting_that_is_empty_is_as_one_that_is_not_there():
    assert subscription_of({"metrics": "", "match": ""}) == subscription_of({})


def test_expressions_of_java_that_are_none_here_are_told_and_match_nobody():
    world = World(java={"metrics": "a", "match": "client_id=(?!x).*"}, plain={"metrics": "b"})
    assert world.subscribe().metrics == ("b",)
    (sentence,) = world.told
    assert "'java'" in sentence


def test_the_id_of_a_subscription_changes_with_what_is_wanted():
    world = World(one={"metrics": "a"})
    first = world.subscribe()
    world.follow(one={"metrics": "a"}, two={"metrics": "b", "match": "client_id=orders"})
    assert world.subscribe(first.instance_id).subscription_id == first.subscription_id
    world.follow(one={"metrics": "a,b"})
    assert world.subscribe(first.instance_id).subscription_id != first.subscription_id
    assert -(2**31) <= first.subscription_id < 2**31


def test_who_asks_again_too_soon_is_refused_but_not_after_a_change():
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    assert code_of(world.subscribe, wanted.instance_id) == "THROTTLING_QUOTA_EXCEEDED"
    world.now_ms += 999
    assert code_of(world.subscribe, wanted.instance_id) == "THROTTLING_QUOTA_EXCEEDED"
    world.follow(one={"metrics": "b", "interval.ms": "1000"})
    assert world.subscribe(wanted.instance_id).metrics == ("b",)
    world.now_ms += 1000
    assert world.subscribe(wanted.instance_id).metrics == ("b",)


@pytest.mark.parametrize("refused", [{"subscription_id": 5}, {"compression": 9}])
def test_who_has_pushed_in_vain_for_an_old_subscription_may_ask_at_once(refused):
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    assert world.push(wanted, **refused) != "NONE"
    assert world.subscribe(wanted.instance_id) == wanted


def test_refusals_of_a_push_come_in_kafkas_order():
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    all_wrong = {"subscription_id": 5, "compression": 9, "size_bytes": BYTES_MAX + 1}
    for reserved in (ZERO_UUID, bytes(15) + b"\1"):
        assert world.push(wanted._replace(instance_id=reserved), **all_wrong) == "INVALID_REQUEST"
    assert world.push(wanted) == "NONE"
    assert world.push(wanted, **all_wrong) == "THROTTLING_QUOTA_EXCEEDED"
    for right in (
        {"UNKNOWN_SUBSCRIPTION_ID": {}},
        {"UNSUPPORTED_COMPRESSION_TYPE": {"subscription_id": wanted.subscription_id}},
        {"TELEMETRY_TOO_LARGE": {"subscription_id": wanted.subscription_id, "compression": 4}},
    ):
        ((code, changes),) = right.items()
        world.now_ms += 1000
        assert world.push(wanted, **{**all_wrong, **changes}) == code
    world.now_ms += 1000
    assert world.push(wanted, is_last=True) == "NONE"
    assert world.push(wanted, is_last=True) == "INVALID_REQUEST"
    # As in Kafka: the refused push that says it is not the last one undoes the end.
    assert world.push(wanted) == "INVALID_REQUEST"
    assert world.push(wanted) == "THROTTLING_QUOTA_EXCEEDED"


def test_the_last_push_need_not_wait():
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    assert world.push(wanted) == "NONE"
    assert world.push(wanted, is_last=True) == "NONE"


def test_the_values_say_whether_they_are_the_last_ones():
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    world.pushed(wanted, 1)
    (values,) = world.metrics.values(world.now_ms)
    assert not values.has_ended
    assert world.push(wanted, is_last=True) == "NONE"
    (values,) = world.metrics.values(world.now_ms)
    assert values.has_ended


def test_a_client_on_another_connection_begins_anew():
    world = World(one={"metrics": "a", "interval.ms": "1000"})
    wanted = world.subscribe()
    assert world.push(wanted, is_last=True) == "NONE"
    moved = JAVA._replace(port=50_001)
    assert world.subscribe(wanted.instance_id, moved) == wanted
    assert world.push(wanted, moved) == "NONE"


def test_the_last_values_of_each_client_are_there_until_it_is_forgotten():
    world = World(one={"metrics": "a", "interval.ms": "30000"})
    first, second = JAVA, JAVA._replace(client_id="orders", port=2)
    one, two = world.subscribe(sender=first), world.subscribe(sender=second)
    assert world.values == {}
    world.pushed(one, 1, first)
    world.pushed(two, 10, second)
    world.now_ms += 30_000
    world.pushed(one, 2, first)
    assert world.values == {"orders": [10], "payments": [2]}
    world.now_ms += 59_999
    assert world.values == {"orders": [10], "payments": [2]}
    world.now_ms += 1
    assert world.values == {"payments": [2]}
    world.now_ms += 30_000
    assert world.values == {}
    world.subscribe()
    assert len(world.metrics) == 1


def test_clients_are_bounded(monkeypatch):
    monkeypatch.setattr(clients, "CLIENTS_MAX", 3)
    world = World(one={"metrics": "a"})
    wanted = [world.subscribe() for _ in range(3)]
    for number, one in enumerate(wanted):
        world.pushed(one, number)
    world.pushed(world.subscribe(), 3)
    assert [one.metrics[0].value for one in world.metrics.values(world.now_ms)] == [1, 2, 3]


def test_values_are_bounded_in_sum_and_those_of_the_longest_silent_go_first(monkeypatch):
    monkeypatch.setattr(clients, "KEPT_BYTES_MAX", 3 * (1000 + clients.POINT_BYTES))
    world = World(one={"metrics": "a"})
    for number in range(5):
        world.pushed(world.subscribe(), number, text_bytes=1000)
    found = [[point.value for point in one.metrics] for one in world.metrics.values(world.now_ms)]
    assert found == [[2], [3], [4]], "what had to go is not told as a push without values"
    assert world.metrics.kept_bytes <= clients.KEPT_BYTES_MAX


def test_what_a_client_says_of_itself_is_kept_in_part():
    world = World(one={"metrics": "a"})
    long = Sender("c" * 30_000, "n" * 30_000, "v" * 30_000, "192.0.2.7", 1)
    world.pushed(world.subscribe(sender=long), 1, long)
    (values,) = world.metrics.values(world.now_ms)
    assert {len(values.client_id), len(values.software_name), len(values.software_version)} == {256}


def test_codes_are_kafkas():
    assert [ErrorCode[name].value for name in ("UNKNOWN_SUBSCRIPTION_ID", "TELEMETRY_TOO_LARGE")] == [
        117,
        118,
    ]
