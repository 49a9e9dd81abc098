"""How one partition changes: leaders, ISR, ELR, epochs, recovery, the end of a reassignment."""

import pytest

from odradek.coordinator.cluster.image_topics import changed_partition
from odradek.coordinator.cluster.view import NO_LEADER, RECOVERED, RECOVERING, PartitionView
from odradek.coordinator.controller.partition_change import Election, PartitionChangeBuilder, TopicRules
from tests.coordinator.controller.cluster import LEVEL, T, disk, said

RULES = TopicRules(T, min_isr=2, is_unclean=False, has_elr=True, metadata_version=LEVEL)
WITHOUT_ELR = RULES._replace(has_elr=False)


def partition(replicas=(1, 2, 3), isr=None, **fields):
    isr = replicas if isr is None else isr
    whole = {"leader": isr[0] if isr else NO_LEADER, "leader_epoch": 5, "partition_epoch": 50, **fields}
    directories = tuple(disk(one) for one in replicas)
    return PartitionView(0, replicas=replicas, isr=isr, **{"directories": directories, **whole})


def change(one, *, alive=(1, 2, 3, 4), rules=RULES, **targets):
    """(what the record says, the partition after it)."""
    builder = PartitionChangeBuilder(
        one, rules, lambda broker, directory: broker in alive, lambda one: disk(one, 9)
    )
    for name, value in targets.items():
        setattr(builder, name, value)
    record = builder.build()
    return ({}, one) if record is None else (said(record), changed_partition(one, record))


def test_nothing_changes_where_the_leader_lives_and_nothing_is_wanted():
    assert change(partition()) == ({}, partition())


# Elections


def test_the_next_in_sync_replica_leads_in_the_order_of_the_assignment():
    record, after = change(partition((3, 1, 2)), alive=(1, 2), isr=(2, 1))
    assert record == {"isr": [2, 1], "leader": 1}
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 6, 51)


def test_a_leader_that_may_go_on_goes_on():
    assert change(partition(leader=2)) == ({}, partition(leader=2))


def test_the_first_replica_is_preferred_only_when_that_is_asked_for():
    record, after = change(partition(leader=2), election=Election.PREFERRED)
    assert (record, after.leader_epoch) == ({"leader": 1}, 6)


@pytest.mark.parametrize(("isr", "alive"), [((2, 3), (1, 2, 3)), ((1, 2, 3), (2, 3))])
def test_without_the_first_replica_in_sync_and_alive_the_leader_stays(isr, alive):
    one = partition(isr=isr, leader=2)
    assert change(one, alive=alive, election=Election.PREFERRED) == ({}, one)


def test_without_the_first_replica_and_the_leader_any_in_sync_replica_is_preferred():
    record, _ = change(partition(isr=(2, 3), leader=2), alive=(1, 3), election=Election.PREFERRED)
    assert record == {"leader": 3}


@pytest.mark.parametrize("election", [Election.ONLINE, Election.PREFERRED])
def test_a_replica_out_of_sync_never_leads_by_itself(election):
    one = partition(isr=(1,), elr=())
    record, after = change(one, alive=(2, 3), election=election, rules=WITHOUT_ELR)
    assert record == {"leader": NO_LEADER}
    assert after.isr == (1,)


def test_an_unclean_election_takes_the_first_replica_that_lives_and_lets_it_recover():
    record, after = change(partition(isr=(1,)), alive=(2, 3), election=Election.UNCLEAN, rules=WITHOUT_ELR)
    assert record == {"leader": 2, "isr": [2], "leader_recovery_state": RECOVERING}
    assert after.leader_epoch == 6


def test_a_partition_that_still_recovers_says_so_once():
    one = partition(isr=(1,), leader_recovery_state=RECOVERING)
    record, after = change(one, alive=(2,), election=Election.UNCLEAN, rules=WITHOUT_ELR)
    assert record == {"leader": 2, "isr": [2]}
    assert after.leader_recovery_state == RECOVERING


def test_an_unclean_election_is_clean_where_that_is_possible():
    record, _ = change(partition(), alive=(2, 3), isr=(2, 3), election=Election.UNCLEAN)
    assert record == {"leader": 2, "isr": [2, 3]}


def test_a_leader_has_recovered_when_it_says_so():
    one = partition(isr=(1,), leader_recovery_state=RECOVERING)
    record, _ = change(one, leader_recovery_state=RECOVERED, rules=WITHOUT_ELR)
    assert record == {"leader_recovery_state": RECOVERED}


# Eligible leaders


def test_who_leaves_an_isr_that_is_too_small_afterwards_is_eligible():
    record, after = change(partition(isr=(1, 2)), isr=(1,), alive=(1, 3))
    assert record == {"isr": [1], "eligible_leader_replicas": [2]}
    assert after.leader_epoch == 5


def test_who_leaves_an_isr_that_is_large_enough_is_not_eligible():
    assert change(partition(), isr=(1, 2))[0] == {"isr": [1, 2]}


def test_nobody_is_eligible_once_the_isr_is_large_enough_again():
    one = partition(isr=(1,), elr=(2,))
    assert change(one, isr=(1, 3))[0] == {"isr": [1, 3], "eligible_leader_replicas": []}


def test_who_comes_back_into_the_isr_is_no_more_eligible():
    rules = RULES._replace(min_isr=3)
    record, _ = change(partition(isr=(1,), elr=(2, 3)), isr=(1, 2), rules=rules)
    assert record == {"isr": [1, 2], "eligible_leader_replicas": [3]}


def test_the_last_in_sync_replica_that_goes_is_eligible_and_noted():
    record, after = change(partition(isr=(1,), elr=(2,)), isr=(), alive=(3,))
    assert record == {
        "isr": [],
        "leader": NO_LEADER,
        "eligible_leader_replicas": [1, 2],
        "last_known_elr": [1],
    }
    assert after.leader_epoch == 6


def test_an_eligible_replica_leads_when_nobody_is_in_sync():
    one = partition(isr=(), elr=(1, 2), last_known_elr=(1,))
    record, after = change(one, alive=(2, 3))
    assert record == {"isr": [2], "leader": 2, "eligible_leader_replicas": [1], "last_known_elr": []}
    assert after.leader_recovery_state == RECOVERED


def test_an_eligible_replica_does_not_lead_while_somebody_is_in_sync():
    assert change(partition(isr=(1,), elr=(2,)), alive=(2,))[0] == {
        "leader": NO_LEADER,
        "last_known_elr": [1],
    }


def test_a_leader_that_commits_alone_leaves_nobody_eligible():
    one = partition(isr=(), elr=(1, 2))
    record, _ = change(one, alive=(2,), rules=RULES._replace(min_isr=1))
    assert record == {"isr": [2], "leader": 2, "eligible_leader_replicas": []}


def test_who_has_been_shut_down_uncleanly_is_not_eligible():
    record, _ = change(partition(isr=(1, 2)), isr=(), lost=(1,), alive=(3,))
    assert record == {
        "isr": [],
        "leader": NO_LEADER,
        "eligible_leader_replicas": [2],
        "last_known_elr": [1],
    }


def test_the_last_leader_is_elected_again_when_nobody_has_everything():
    one = partition(isr=(), elr=(), last_known_elr=(1,))
    record, _ = change(one, alive=(1, 2))
    assert record == {
        "isr": [1],
        "leader": 1,
        "leader_recovery_state": RECOVERING,
        "last_known_elr": [],
    }


@pytest.mark.parametrize(
    ("one", "alive"),
    [
        (partition(isr=(), elr=(2,), last_known_elr=(1,)), (1, 3)),
        (partition(isr=(), last_known_elr=(1,)), (2, 3)),
        (partition(isr=(), last_known_elr=(1, 2)), (1, 2)),
        (partition((2, 3), isr=(), last_known_elr=(1,)), (1, 2)),
    ],
    ids=["somebody is eligible", "it does not live", "there are two", "it is no replica"],
)
def test_the_last_leader_is_not_elected(one, alive):
    assert change(one, alive=alive) == ({}, one)


def test_an_unclean_election_ends_eligibility():
    one = partition(isr=(), elr=(1,), last_known_elr=(1,))
    record, _ = change(one, alive=(3,), election=Election.UNCLEAN)
    assert record == {
        "isr": [3],
        "leader": 3,
        "leader_recovery_state": RECOVERING,
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }


def test_without_elr_the_last_in_sync_replica_stays():
    record, after = change(partition(isr=(1,)), isr=(), alive=(2,), rules=WITHOUT_ELR)
    assert record == {"leader": NO_LEADER}
    assert after.isr == (1,)


def test_eligible_leaders_go_where_the_cluster_has_none_any_more():
    assert change(partition(isr=(1,), elr=(2,)), rules=WITHOUT_ELR)[0] == {"eligible_leader_replicas": []}


def test_no_leader_is_not_the_last_known_leader():
    one = partition((1, 2, 3), isr=(1,), leader=NO_LEADER)
    record, _ = change(one, alive=(), replicas=(1, 2))
    assert record == {"replicas": [1, 2], "directories": [disk(1), disk(2)], "leader": NO_LEADER}


# Epochs


@pytest.mark.parametrize(("level", "epoch"), [(11, 6), (12, 5)])
def test_an_isr_that_shrinks_begins_an_epoch_below_3_6(level, epoch):
    rules = WITHOUT_ELR._replace(metadata_version=level)
    assert change(partition(), isr=(1, 2), rules=rules)[1].leader_epoch == epoch


def test_an_isr_that_grows_begins_no_epoch():
    rules = WITHOUT_ELR._replace(metadata_version=11)
    assert change(partition(isr=(1,)), isr=(1, 2), rules=rules)[1].leader_epoch == 5


# Reassignment


def test_new_replicas_get_directories_and_no_epoch():
    record, after = change(partition(), replicas=(1, 2, 3, 4), adding=(4,))
    assert record == {
        "replicas": [1, 2, 3, 4],
        "adding_replicas": [4],
        "directories": [disk(1), disk(2), disk(3), disk(4, 9)],
    }
    assert after.leader_epoch == 5


def test_directories_need_a_level():
    rules = WITHOUT_ELR._replace(metadata_version=16)
    record, _ = change(partition(), replicas=(1, 2, 3, 4), adding=(4,), rules=rules)
    assert record == {"replicas": [1, 2, 3, 4], "adding_replicas": [4]}


def test_a_directory_changes():
    record, _ = change(partition(), directories={2: disk(2, 5)})
    assert record == {"directories": [disk(1), disk(2, 5), disk(3)]}
    assert change(partition(), directories={2: disk(2)})[0] == {}


def test_a_reassignment_is_complete_when_all_that_are_added_are_in_sync():
    one = partition((2, 3, 4, 1), isr=(1, 2, 3), leader=2, adding=(4,), removing=(1,))
    record, after = change(one, isr=(1, 2, 3, 4))
    assert record == {
        "isr": [2, 3, 4],
        "replicas": [2, 3, 4],
        "directories": [disk(2), disk(3), disk(4)],
        "adding_replicas": [],
        "removing_replicas": [],
        "leader": 2,
    }
    assert after.leader_epoch == 6


def test_a_leader_that_is_removed_is_replaced():
    one = partition((2, 3, 4, 1), isr=(1, 2, 3), adding=(4,), removing=(1,))
    assert change(one, isr=(1, 2, 3, 4))[1].leader == 2


def test_a_reassignment_is_not_complete_before():
    one = partition((2, 3, 4, 1), isr=(1,), leader=1, adding=(4,), removing=(1,))
    assert change(one, isr=(1, 2, 3))[0] == {"isr": [1, 2, 3]}


def test_more_removals_than_additions_wait_for_all_that_stay():
    one = partition((2, 3, 1), isr=(1, 2), leader=1, removing=(1,))
    assert change(one, isr=(1, 2))[0] == {}
    assert change(one, isr=(1, 2, 3))[1].replicas == (2, 3)


def test_nothing_is_removed_while_nobody_else_is_in_sync():
    one = partition((1, 2), isr=(1,), removing=(1,))
    assert change(one) == ({}, one)


def test_additions_alone_are_complete_without_an_epoch():
    one = partition((1, 2, 3), isr=(1, 2), adding=(3,))
    record, after = change(one, isr=(1, 2, 3))
    assert record == {"isr": [1, 2, 3], "adding_replicas": []}
    assert after.leader_epoch == 5


def test_who_has_left_the_assignment_is_not_eligible():
    one = partition((2, 1), isr=(1,), leader=1, adding=(2,), removing=(1,))
    record, _ = change(one, isr=(1, 2))
    assert "eligible_leader_replicas" not in record
    assert record["isr"] == [2]
