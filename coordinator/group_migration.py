"""What members of one protocol do in a group of the other, and how such a group changes its type while it works.

A rolling upgrade: the first member of the consumer protocol makes a classic group of consumers a consumer group
(`upgrade`). Its classic members stay. They go on to join, sync, and send heartbeats (`join`, `sync`,
`heartbeat`, `leave`), and what they are told is what members of the consumer protocol are told in one answer: a
heartbeat says REBALANCE_IN_PROGRESS when there is something to fetch or to give up, a join says the new
generation (the member's epoch), a sync the partitions. Nobody is parked, since nobody waits for a leader. When
the last member of the consumer protocol leaves, or a static one comes back with the classic protocol, what
remains is a classic group again (`downgrade`).

Both directions can be forbidden (`group.consumer.migration.policy`). A group without members always takes the
type of the first that joins.

Source: GroupMetadataManager.java of Kafka 4.3 (validateOnlineUpgrade, convertToConsumerGroup,
classicGroupJoinToConsumerGroup, consumerGroupFenceMembers and what they call).
"""
