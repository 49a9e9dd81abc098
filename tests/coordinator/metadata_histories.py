"""Seeded histories of a cluster as records of its metadata log, and the snapshot that sums one up.

`History` keeps the state in a plain way of its own (dicts, no views), so that it is a second opinion.
"""

import random
from copy import deepcopy

from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

DIRECTORIES = [number.to_bytes(16, "big") for number in range(200, 206)]
SPECIAL = [number.to_bytes(16, "big") for number in range(3)]
NAMES = ["a", "b", "c", "__consumer_offsets"]
GROUPS = ["g1", "g2"]


class History:
    """Makes one record after the other. `topics` are by id: (name, partitions by index)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.topics = {}
        self.brokers = {}
        self.configs = {}
        self.features = {}
        self.quotas = {}
        self.users = {}
        self.next_producer_id = 0
        self.offset = 0

    def batch(self):
        """Records of one batch, as the controller commits them: often one, sometimes a transaction."""
        if self.random.random() < 0.1:
            aborted = self.random.random() < 0.4
            state = deepcopy(self.__dict__)
            inside = [one for _ in range(self.random.randrange(5)) for one in self.step()]
            if aborted:
                # Ids and epochs are not used again, whatever comes of it.
                state["offset"], state["random"] = self.offset, self.random
                self.__dict__.update(state)
            end = AbortTransactionRecord() if aborted else EndTransactionRecord()
            return [BeginTransactionRecord(name="t"), *inside, end]
        return [one for _ in range(self.random.randrange(1, 4)) for one in self.step()]

    def step(self):
        """One decision: its records, which are in the state already."""
        makers = [
            *[self.register] * 2,
            *[self.change_broker] * 4,
            *[self.create_topic] * 3,
            *[self.change_partition] * 12,
            *[self.set_config] * 3,
            *(self.unregister, self.fence_in_the_old_way, self.grow, self.remove_topic, self.clear_elr),
            *(self.set_feature, self.set_quota, self.set_user, self.allocate, lambda: [NoOpRecord()]),
        ]
        self.offset += 1
        return self.random.choice(makers)()

    # Brokers

    def register(self):
        node_id = self.random.randrange(1, 5)
        record = RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=self.random.randbytes(16),
            broker_epoch=self.offset,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host{node_id}", port=9092)],
            features=[BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1)],
            rack=self.random.choice([None, "r1"]),
            log_dirs=self.some(DIRECTORIES),
            cordoned_log_dirs=self.random.choice([None, [], DIRECTORIES[:1]]),
        )
        self.brokers[node_id] = deepcopy(record)
        return [record]

    def change_broker(self):
        broker = self.any_broker()
        if broker is None:
            return []
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            fenced=self.random.choice([-1, -1, 0, 1]),
            in_controlled_shutdown=self.random.choice([0, 0, 1]),
            log_dirs=self.random.choice([[], self.some(DIRECTORIES)]),
            cordoned_log_dirs=self.random.choice([None, [], DIRECTORIES[:2]]),
        )
        if record.fenced:
            broker.fenced = record.fenced == 1
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = True
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs
        return [record]

    def fence_in_the_old_way(self):
        broker = self.any_broker()
        if broker is None:
            return []
        broker.fenced = self.random.random() < 0.5
        cls = FenceBrokerRecord if broker.fenced else UnfenceBrokerRecord
        return [cls(id=broker.broker_id, epoch=broker.broker_epoch)]

    def unregister(self):
        broker = self.any_broker()
        if broker is None or self.random.random() < 0.5:
            return []
        del self.brokers[broker.broker_id]
        return [UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)]

    # Topics

    def create_topic(self):
        name = self.random.choice(NAMES)
        if any(taken == name for taken, _ in self.topics.values()):
            return []
        topic_id = self.offset.to_bytes(16, "big") + b""
        self.topics[topic_id] = (name, {})
        records = [TopicRecord(name=name, topic_id=topic_id)]
        if self.random.random() < 0.5:
            records += self.set_config(owner=(2, name))
        for index in range(self.random.randrange(1, 4)):
            records += self.new_partition(topic_id, index)
        return records

    def grow(self):
        if not self.topics:
            return []
        topic_id = self.random.choice(sorted(self.topics))
        return self.new_partition(topic_id, len(self.topics[topic_id][1]))

    def new_partition(self, topic_id, index):
        replicas = self.replicas()
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[:],
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=self.homes(replicas) if self.random.random() < 0.8 else [],
        )
        state = deepcopy(record)
        state.directories = state.directories or [SPECIAL[0]] * len(replicas)
        self.topics[topic_id][1][index] = state
        return [record]

    def change_partition(self):
        if not self.topics:
            return []
        topic_id = self.random.choice(sorted(self.topics))
        partition = self.random.choice(list(self.topics[topic_id][1].values()))
        record = PartitionChangeRecord(partition_id=partition.partition_id, topic_id=topic_id)
        if self.often():
            record.isr = self.some(partition.replicas)
            partition.isr = record.isr
        if self.often():
            record.leader = self.random.choice([-1, *partition.replicas])
            partition.leader, partition.leader_epoch = record.leader, partition.leader_epoch + 1
        if self.often(0.2):
            record.replicas = self.replicas()
            homes = dict(zip(partition.replicas, partition.directories, strict=True))
            partition.directories = [homes.get(one, SPECIAL[0]) for one in record.replicas]
            partition.replicas = record.replicas
            record.adding_replicas = partition.adding_replicas = self.some(record.replicas)
            record.removing_replicas = partition.removing_replicas = []
        if self.often(0.3):
            record.directories = partition.directories = self.homes(partition.replicas)
        if self.often(0.3):
            record.eligible_leader_replicas = partition.eligible_leader_replicas = self.some([1, 2, 3])
        if self.often(0.3):
            record.last_known_elr = partition.last_known_elr = self.some([1, 2, 3])
        if self.often(0.3):
            record.leader_recovery_state = partition.leader_recovery_state = self.random.randrange(2)
        partition.partition_epoch += 1
        return [record]

    def remove_topic(self):
        if not self.topics or self.random.random() < 0.3:
            return []
        topic_id = self.random.choice(sorted(self.topics))
        name, _ = self.topics.pop(topic_id)
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (2, name)}
        return [RemoveTopicRecord(topic_id=topic_id)]

    def clear_elr(self):
        names = [name for name, _ in self.topics.values()]
        wanted = self.random.choice(["", *names])
        for name, partitions in self.topics.values():
            for one in partitions.values():
                if wanted in ("", name) and (one.eligible_leader_replicas or one.last_known_elr):
                    one.eligible_leader_replicas = one.last_known_elr = []
                    one.partition_epoch += 1
        return [ClearElrRecord(topic_name=wanted)]

    # The rest

    def set_config(self, owner=None):
        names = [name for name, _ in self.topics.values()]
        owners = [(4, ""), (4, "1"), (4, "2"), (16, "m"), *((32, one) for one in GROUPS)]
        kind, name = owner or self.random.choice([*owners, *((2, one) for one in names)])
        key = self.random.choice(["x.y", "z"])
        value = self.random.choice(["1", "2", None])
        self.configs.pop((kind, name, key), None)
        if value is not None:
            self.configs[kind, name, key] = value
        return [ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)]

    def set_feature(self):
        name, level = self.random.choice(["metadata.version", "group.version"]), self.random.randrange(3)
        self.features.pop(name, None)
        if level:
            self.features[name] = level
        return [FeatureLevelRecord(name=name, feature_level=level)]

    def set_quota(self):
        entity = [("client-id", None), ("user", self.random.choice([None, "u"]))]
        remove = self.random.random() < 0.5
        self.quotas.pop(tuple(entity), None)
        if not remove:
            self.quotas[tuple(entity)] = float(self.offset)
        self.random.shuffle(entity)
        return [quota_record(entity, float(self.offset), remove)]

    def set_user(self):
        if self.random.random() < 0.5:
            self.users.pop("u", None)
            return [RemoveUserScramCredentialRecord(name="u", mechanism=1)]
        self.users["u"] = UserScramCredentialRecord(name="u", mechanism=1, iterations=self.offset)
        return [self.users["u"]]

    def allocate(self):
        self.next_producer_id += 1000
        return [ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=self.next_producer_id)]

    # Snapshot

    def snapshot(self):
        """The records that make the present state, in an order of their own."""
        records = [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in self.features.items()
        ]
        records += [deepcopy(one) for one in self.brokers.values()]
        for topic_id, (name, partitions) in reversed(list(self.topics.items())):
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += [deepcopy(one) for _, one in sorted(partitions.items(), reverse=True)]
        records += [
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
            for (kind, name, key), value in self.configs.items()
        ]
        records += [quota_record(entity, value, False) for entity, value in self.quotas.items()]
        records += self.users.values()
        records.append(ProducerIdsRecord(broker_id=1, next_producer_id=self.next_producer_id))
        return records

    def any_broker(self):
        return self.random.choice(list(self.brokers.values())) if self.brokers else None

    def replicas(self):
        return self.random.sample(range(1, 5), self.random.randrange(1, 4))

    def homes(self, replicas):
        return [self.random.choice(DIRECTORIES + SPECIAL) for _ in replicas]

    def some(self, values):
        return self.random.sample(values, self.random.randrange(1, len(values) + 1))

    def often(self, probability=0.5):
        return self.random.random() < probability


def quota_record(entity, value, remove):
    entities = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=entities, key="producer_byte_rate", value=value, remove=remove)


def acl_record(number):
    return AccessControlEntryRecord(
        id=number.to_bytes(16, "big"),
        resource_type=2,
        resource_name=f"t{number}",
        pattern_type=3,
        principal="User:u",
        host="*",
        operation=3,
        permission_type=3,
    )
