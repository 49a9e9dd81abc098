"""Classic groups (JoinGroup, SyncGroup) and consumer groups (KIP-848), and the offsets that groups commit.

In reading order: `commands.py` (what no client sends), `settings.py`, `request_checks.py` (refusals that need
no group), `group.py` (what every type of group is), `record_codec.py` (records of `__consumer_offsets`),
`offsets.py` and `pending_offsets.py` (committed, and in open transactions). A classic group:
`classic_group.py` (data), `classic_members.py`, `classic_rebalance.py` and `classic_membership.py` (rules). A
consumer group: `subscriptions.py` and `consumer_group.py` (data), `consumer_membership.py` (rules),
`consumer_changes.py` (what a change writes), `assignors.py`, `reconciliation.py`, `sessions.py`. From
one type to the other: `conversion.py` (the records), `migration.py` (the rules). All of them work in
`coordinator/group_machine.py`.
"""
