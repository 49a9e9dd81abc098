"""Registration, heartbeats, sessions, fencing and removal of brokers."""

import pytest

from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION, METADATA_VERSION
from odradek.coordinator.cluster.view import NO_LEADER, Endpoint
from odradek.coordinator.controller.brokers import fence, fence_expired, unregister_broker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.broker_registration import Listener
from odradek.wire.messages.metadata_records import RegisterBrokerRecord
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.coordinator.controller.cluster import LEVEL, SESSION_MS, Cluster, disk, feature

OTHER = b"other".ljust(16, b".")


def refusal(call, *arguments, **fields) -> str:
    with pytest.raises(KafkaError) as refused:
        call(*arguments, **fields)
    return refused.value.code.name


# Registration


def test_a_broker_registers_fenced_with_the_offset_as_its_epoch():
    cluster = Cluster()
    offset = cluster.next_offset
    decision = cluster.register(1)
    assert (decision.response.error_code, decision.response.broker_epoch) == (0, offset)
    broker = cluster.broker(1)
    assert (broker.epoch, broker.is_fenced, broker.in_controlled_shutdown) == (offset, True, False)
    assert (broker.rack, broker.directories, broker.cordoned_directories) == ("r", (disk(1),), None)
    assert broker.endpoints == {"OUT": Endpoint("h", 9092)}
    assert broker.features == {METADATA_VERSION: (7, LEVEL), ELIGIBLE_LEADERS_VERSION: (0, 1)}


def test_the_epoch_is_the_offset_of_the_first_record():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]}, {"replicas": [1, 2]})
    cluster.now_ms = SESSION_MS + 1
    offset = cluster.next_offset
    decision = cluster.register(1)
    assert len(decision.records) == 3
    assert decision.response.broker_epoch == offset


def test_the_same_process_keeps_its_epoch_and_its_state():
    cluster = Cluster()
    cluster.register(1)
    epoch = cluster.broker(1).epoch
    cluster.beat(1)
    decision = cluster.register(1, rack="other")
    assert decision.response.broker_epoch == epoch
    assert [type(one) for one in decision.records] == [RegisterBrokerRecord]
    assert (cluster.broker(1).rack, cluster.broker(1).is_fenced) == ("other", False)


def test_another_process_waits_for_the_end_of_the_session():
    cluster = Cluster(1)
    cluster.now_ms = SESSION_MS
    assert refusal(cluster.register, 1) == "DUPLICATE_BROKER_REGISTRATION"
    cluster.now_ms += 1
    assert cluster.register(1).response.error_code == 0


def test_a_session_of_a_broker_that_is_still_fenced_counts_too():
    cluster = Cluster()
    cluster.register(1)
    cluster.beat(1, current_metadata_offset=0)
    assert refusal(cluster.register, 1, incarnation_id=OTHER) == "DUPLICATE_BROKER_REGISTRATION"


def test_a_process_that_was_never_heard_of_has_no_session():
    cluster = Cluster()
    cluster.register(1)
    assert cluster.register(1, incarnation_id=OTHER).response.error_code == 0


def test_a_restart_after_a_granted_shutdown_does_not_wait():
    cluster = Cluster(1)
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down
    assert cluster.register(1).response.error_code == 0


def test_a_restart_after_a_death_that_was_told_does_not_wait():
    cluster = Cluster(1)
    cluster.append(*fence(cluster.view, cluster.defaults, cluster.sessions, 1, cluster.broker(1).epoch))
    assert cluster.register(1).response.error_code == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "other"}, "INCONSISTENT_CLUSTER_ID"),
        ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED"),
        ({"log_dirs": []}, "INVALID_REGISTRATION"),
        ({"log_dirs": [bytes(15) + b"\x63"]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [disk(3), disk(3)]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [disk(3), disk(2)]}, "INVALID_REGISTRATION"),
        ({"features": []}, "INVALID_REGISTRATION"),
        ({"features": [feature(METADATA_VERSION, 7, LEVEL)]}, "UNSUPPORTED_VERSION"),
        ({"features": [feature(METADATA_VERSION, 7, LEVEL - 1)]}, "UNSUPPORTED_VERSION"),
        ({"features": [feature("unknown", 1, 1)]}, "UNSUPPORTED_VERSION"),
    ],
    ids=str,
)
def test_a_registration_is_refused(fields, error):
    cluster = Cluster(2)
    assert refusal(cluster.register, 3, **fields) == error
    assert 3 not in cluster.view.registrations


def test_a_feature_that_nobody_uses_may_be_supported():
    cluster = Cluster()
    features = [feature(METADATA_VERSION, 7, LEVEL), feature(ELIGIBLE_LEADERS_VERSION, 0, 1)]
    assert cluster.register(1, features=[*features, feature("unknown", 0, 1)]).response.error_code == 0


@pytest.mark.parametrize(
    "fields", [{"host": " "}, {"port": 0}, {"security_protocol": 4}, {"security_protocol": -1}], ids=str
)
def test_a_listener_that_nobody_could_reach_is_refused(fields):
    listener = Listener(**{"name": "OUT", "host": "h", "port": 1, "security_protocol": 0, **fields})
    assert refusal(Cluster().register, 1, listeners=[listener]) == "INVALID_REGISTRATION"


def test_directories_need_a_level():
    cluster = Cluster(level=16, has_elr=False)
    features = [feature(METADATA_VERSION, 7, LEVEL)]
    assert cluster.register(1, log_dirs=[], features=features).response.error_code == 0
    cluster.register(2, features=features)
    assert cluster.broker(2).directories == ()


@pytest.mark.parametrize(("is_clean", "elr"), [(True, (1,)), (False, ())])
def test_a_restart_says_whether_the_shutdown_was_clean(is_clean, elr):
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]})
    epoch = cluster.broker(1).epoch
    cluster.append(*fence(cluster.view, cluster.defaults, cluster.sessions, 1, epoch))
    cluster.register(1, previous_broker_epoch=epoch if is_clean else epoch - 1)
    assert cluster.partition().elr == elr


# Heartbeats


def test_a_broker_is_unfenced_once_it_has_its_registration():
    cluster = Cluster()
    cluster.register(1)
    epoch = cluster.broker(1).epoch
    seen = []
    for offset, wants_fence in [(epoch - 1, True), (epoch - 1, False), (epoch, True), (epoch, False)]:
        response = cluster.beat(1, current_metadata_offset=offset, want_fence=wants_fence).response
        seen.append((response.is_caught_up, response.is_fenced, response.should_shut_down))
    assert seen == [(False, True, False), (False, True, False), (True, True, False), (True, False, False)]
    assert not cluster.broker(1).is_fenced
    assert cluster.beat(1).records == []


@pytest.mark.parametrize("change", [-1, 1])
def test_a_heartbeat_of_another_process_is_refused(change):
    cluster = Cluster(1)
    assert refusal(cluster.beat, 1, broker_epoch=cluster.broker(1).epoch + change) == "STALE_BROKER_EPOCH"
    assert refusal(cluster.beat, 1, broker_epoch=-1) == "STALE_BROKER_EPOCH"


def test_a_heartbeat_of_a_broker_that_is_not_registered_is_refused():
    cluster = Cluster(1)
    epoch = cluster.broker(1).epoch
    cluster.append(*unregistered(cluster, 1).records)
    assert refusal(cluster.batch().broker, 1, epoch) == "STALE_BROKER_EPOCH"


def test_a_broker_may_ask_to_be_fenced():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    response = cluster.beat(1, want_fence=True).response
    assert (response.is_fenced, response.should_shut_down) == (True, False)
    assert (cluster.broker(1).is_fenced, cluster.partition().leader) == (True, 2)


@pytest.mark.parametrize("wants", [{}, {"want_fence": True}])
def test_a_broker_that_leads_nothing_may_stop_at_once(wants):
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [2, 1]})
    decision = cluster.beat(1, want_shut_down=True, **wants)
    assert decision.response.should_shut_down
    assert decision.response.is_fenced
    assert decision.shutting_down is None
    assert (cluster.broker(1).is_fenced, cluster.partition().isr) == (True, (2,))


def test_a_broker_that_is_fenced_may_stop_at_once():
    cluster = Cluster()
    cluster.register(1)
    assert cluster.beat(1, want_shut_down=True, want_fence=True).response.should_shut_down


def test_a_broker_that_leads_stops_when_all_others_know_their_new_leaders():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic({"replicas": [1, 2]})
    for one in (1, 2, 3):
        cluster.beat(one)
    response = cluster.beat(1, want_shut_down=True).response
    assert (response.should_shut_down, response.is_fenced) == (False, False)
    end_offset = cluster.image.offset
    assert (cluster.partition().leader, cluster.broker(1).in_controlled_shutdown) == (2, True)
    cluster.beat(2)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(3, current_metadata_offset=end_offset - 1)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(3, current_metadata_offset=end_offset)
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down
    assert cluster.broker(1).is_fenced


def test_brokers_that_are_fenced_or_stop_are_not_waited_for():
    cluster = Cluster(1, 2, 3, 4)
    cluster.add_topic({"replicas": [1, 4]}, {"replicas": [2, 4]})
    cluster.append(*fence(cluster.view, cluster.defaults, cluster.sessions, 3, cluster.broker(3).epoch))
    for one in (1, 2):
        assert not cluster.beat(one, want_shut_down=True).response.should_shut_down
    cluster.beat(4)
    for one in (1, 2):
        assert cluster.beat(one, want_shut_down=True).response.should_shut_down


def test_a_broker_stays_while_it_leads():
    """A leader that came before the shutdown was in the log."""
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    cluster.beat(1, want_shut_down=True)
    cluster.beat(2)
    cluster.add_topic({"replicas": [1, 2]}, name="u", topic_id=b"u" * 16)
    cluster.beat(2)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down


def test_a_shutdown_goes_on_with_a_new_controller():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]}, {"replicas": [1]})
    cluster.beat(1, want_shut_down=True)
    cluster.sessions.begin(cluster.view.registrations.values(), cluster.now_ms)
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down


def test_cordoned_directories_are_noted():
    cluster = Cluster(1)
    assert len(cluster.beat(1, cordoned_log_dirs=[disk(1)]).records) == 1
    assert cluster.broker(1).cordoned_directories == (disk(1),)
    assert cluster.beat(1, cordoned_log_dirs=[disk(1)]).records == []
    assert cluster.beat(1, cordoned_log_dirs=None).records == []
    cluster.beat(1, cordoned_log_dirs=[])
    assert cluster.broker(1).cordoned_directories == ()


def test_cordoned_directories_need_a_level():
    assert Cluster(1, level=29).beat(1, cordoned_log_dirs=[disk(1)]).records == []


# Fencing


def expire(cluster, now_ms):
    return cluster.append(*fence_expired(cluster.view, cluster.defaults, cluster.sessions, now_ms))


def test_a_broker_that_is_not_heard_of_is_fenced():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    cluster.now_ms = 1_000
    cluster.beat(2)
    assert cluster.sessions.next_expiry_ms == SESSION_MS + 1
    assert expire(cluster, SESSION_MS) == []
    expire(cluster, SESSION_MS + 1)
    assert (cluster.broker(1).is_fenced, cluster.broker(2).is_fenced) == (True, False)
    assert cluster.partition().leader == 2
    assert cluster.sessions.next_expiry_ms == SESSION_MS + 1_001
    expire(cluster, SESSION_MS + 1_001)
    assert cluster.sessions.next_expiry_ms is None
    assert cluster.partition().leader == NO_LEADER


def test_a_broker_that_is_fenced_comes_back_with_its_epoch():
    cluster = Cluster(1)
    epoch = cluster.broker(1).epoch
    expire(cluster, SESSION_MS + 1)
    cluster.now_ms = SESSION_MS + 2
    assert not cluster.beat(1).response.is_fenced
    assert (cluster.broker(1).epoch, cluster.broker(1).is_fenced) == (epoch, False)


def test_a_heartbeat_that_has_come_counts_before_it_is_read():
    cluster = Cluster(1)
    cluster.sessions.contact(cluster.broker(1), 1_000)
    assert expire(cluster, SESSION_MS + 1) == []


def test_a_session_that_is_over_fences_no_later_process():
    cluster = Cluster(1)
    cluster.now_ms = SESSION_MS + 1
    cluster.register(1)
    assert expire(cluster, SESSION_MS + 1) == []


def test_a_session_of_a_broker_that_is_gone_ends_quietly():
    cluster = Cluster(1)
    cluster.append(*unregistered(cluster, 1).records)
    assert expire(cluster, SESSION_MS + 1) == []
    assert cluster.sessions.next_expiry_ms is None


def test_a_clock_that_goes_back_ends_no_session():
    cluster = Cluster(1)
    cluster.sessions.contact(cluster.broker(1), 500)
    cluster.sessions.contact(cluster.broker(1), 100)
    assert cluster.sessions.next_expiry_ms == SESSION_MS + 501


def test_a_broker_whose_process_is_dead_is_fenced_at_once():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    epoch = cluster.broker(1).epoch
    assert fence(cluster.view, cluster.defaults, cluster.sessions, 1, epoch - 1) == []
    assert fence(cluster.view, cluster.defaults, cluster.sessions, 9, epoch) == []
    cluster.append(*fence(cluster.view, cluster.defaults, cluster.sessions, 1, epoch))
    assert (cluster.broker(1).is_fenced, cluster.partition().leader) == (True, 2)
    assert fence(cluster.view, cluster.defaults, cluster.sessions, 1, epoch) == []


# Removal


def unregistered(cluster, broker_id):
    return unregister_broker(cluster.view, cluster.defaults, UnregisterBrokerRequest(broker_id=broker_id))


def test_a_broker_is_removed():
    cluster = Cluster(1, 2)
    decision = unregistered(cluster, 1)
    cluster.append(*decision.records)
    assert (decision.response.error_code, decision.response.error_message) == (ErrorCode.NONE, "")
    assert list(cluster.view.registrations) == [2]


def test_a_broker_that_is_not_registered_cannot_be_removed():
    assert refusal(unregistered, Cluster(1), 2) == "BROKER_ID_NOT_REGISTERED"
