import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Every operation of Kafka's Admin that 3.9 and 4.3 both have, one after the other, against the broker at
 * argument 0, with names that begin with argument 1. A line each, fields separated by tabs: `OPERATION
 * MILLISECONDS ok FACTS` or `OPERATION MILLISECONDS failed EXCEPTION MESSAGE`; last `all OPERATIONS`, what the
 * interface has. A class AdminSweepNewer, where there is one, tells of what only its version has.
 */
public class AdminSweep {
    /** What is done; its result is printed. */
    interface Operation {
        Object run() throws Exception;
    }

    final Admin admin;
    final String bootstrap;
    final String topic;
    final String group;
    final TopicPartition zero;
    final TopicPartition one;

    AdminSweep(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        topic = prefix + "-topic";
        group = prefix + "-group";
        zero = new TopicPartition(topic, 0);
        one = new TopicPartition(topic, 1);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "15000");
        settings.put("default.api.timeout.ms", "20000");
        admin = Admin.create(settings);
    }

    public static void main(String[] arguments) throws Exception {
        AdminSweep sweep = new AdminSweep(arguments[0], arguments[1]);
        sweep.topics();
        sweep.records();
        sweep.groups();
        sweep.clusters();
        sweep.transactions();
        sweep.security();
        sweep.moves();
        try {
            Class.forName("AdminSweepNewer").getConstructor(AdminSweep.class).newInstance(sweep);
        } catch (ClassNotFoundException older) {
            sweep.tell("alterConfigs", () -> get(sweep.alterConfigs()));
        }
        sweep.endings();
        Set<String> all = new TreeSet<>();
        for (java.lang.reflect.Method method : Admin.class.getMethods()) {
            all.add(method.getName());
        }
        System.out.println("all\t0\tok\t" + String.join(" ", all));
        exit();
    }

    /** As the tools of Kafka end: they may share a virtual machine. Kafka 4.4 has the class in another package. */
    private static void exit() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        exit.getMethod("exit", int.class).invoke(null, 0);
    }

    void tell(String operation, Operation what) {
        long start = System.nanoTime();
        String outcome;
        try {
            outcome = "ok\t" + what.run();
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            outcome = "failed\t" + cause.getClass().getSimpleName() + "\t" + cause.getMessage();
        }
        long milliseconds = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        System.out.println(operation + "\t" + milliseconds + "\t" + outcome.replace('\n', ' '));
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(30, TimeUnit.SECONDS);
    }

    private void topics() {
        tell("createTopics", () -> {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"));
            CreateTopicsResult made = admin.createTopics(List.of(wanted));
            String retention = get(made.config(topic)).get("retention.ms").value();
            return get(made.numPartitions(topic)) + " " + get(made.replicationFactor(topic)) + " " + retention;
        });
        tell("listTopics", () -> get(admin.listTopics().names()).contains(topic));
        tell("describeTopics", () -> {
            TopicDescription described = get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
            Uuid id = described.topicId();
            String byId = get(admin.describeTopics(
                org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name();
            TopicPartitionInfo first = described.partitions().get(0);
            return described.partitions().size() + " " + first.leader().id() + " " + first.isr().size()
                + " " + byId.equals(topic) + " " + described.isInternal();
        });
        tell("createPartitions", () -> get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
        tell("describeConfigs", () -> {
            ConfigResource ours = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry entry = get(admin.describeConfigs(List.of(ours)).all()).get(ours).get("retention.ms");
            String nodeId = Integer.toString(get(admin.describeCluster().controller()).id());
            ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, nodeId);
            Config broker = get(admin.describeConfigs(List.of(node)).all()).get(node);
            return entry.value() + " " + entry.source() + " " + broker.get("num.partitions").value();
        });
        tell("incrementalAlterConfigs", () -> get(admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, topic),
            (Collection<AlterConfigOp>) List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET)))).all()));
        tell("listClientMetricsResources", () -> get(admin.listClientMetricsResources().all()).size());
    }

    /** Of 3.9 and older only, so found by its name. */
    @SuppressWarnings("unchecked")
    KafkaFuture<Void> alterConfigs() throws Exception {
        Map<ConfigResource, Config> wanted = Map.of(
            new ConfigResource(ConfigResource.Type.TOPIC, topic), new Config(List.of(new ConfigEntry("retention.ms", "1"))));
        AlterConfigsResult result = (AlterConfigsResult) Admin.class.getMethod("alterConfigs", Map.class).invoke(admin, wanted);
        return result.all();
    }

    private void records() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int n = 0; n < 5; n++) {
                producer.send(new ProducerRecord<>(topic, 0, 1000L * n, null, "value"));
            }
        }
        tell("listOffsets", () -> {
            StringBuilder found = new StringBuilder();
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                    OffsetSpec.forTimestamp(2500), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
                found.append(get(admin.listOffsets(Map.of(zero, spec)).partitionResult(zero)).offset()).append(' ');
            }
            return found.toString().trim();
        });
        tell("describeProducers", () -> get(admin.describeProducers(List.of(zero)).all()).get(zero).activeProducers().size());
        tell("deleteRecords", () -> get(
            admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(zero)).lowWatermark());
    }

    private void groups() {
        tell("alterConsumerGroupOffsets", () -> get(admin.alterConsumerGroupOffsets(
            group, Map.of(zero, new OffsetAndMetadata(3, "note"), one, new OffsetAndMetadata(0))).all()));
        tell("listConsumerGroupOffsets", () -> {
            Map<TopicPartition, OffsetAndMetadata> found =
                get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            return found.size() + " " + found.get(zero).offset() + " " + found.get(zero).metadata();
        });
        tell("deleteConsumerGroupOffsets", () -> {
            get(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all());
            return get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).size();
        });
        tell("listConsumerGroups", () -> get(admin.listConsumerGroups().all()).stream()
            .filter(listing -> listing.groupId().equals(group)).count());
        try (KafkaConsumer<String, String> consumer = member()) {
            tell("describeConsumerGroups", () -> {
                ConsumerGroupDescription described = described();
                MemberDescription member = described.members().iterator().next();
                return described.state() + " " + described.members().size() + " "
                    + member.assignment().topicPartitions().size() + " " + described.partitionAssignor();
            });
            tell("removeMembersFromConsumerGroup", () -> {
                get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all());
                return described().state() + " " + described().members().size();
            });
        }
        tell("deleteConsumerGroups", () -> {
            get(admin.deleteConsumerGroups(List.of(group)).all());
            return get(admin.listConsumerGroups().all()).stream()
                .filter(listing -> listing.groupId().equals(group)).count();
        });
    }

    private ConsumerGroupDescription described() throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    /** A consumer that has all partitions of the topic. */
    private KafkaConsumer<String, String> member() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100));
        }
        return consumer;
    }

    private void clusters() {
        tell("describeCluster", () -> {
            DescribeClusterResult described = admin.describeCluster();
            Collection<Node> nodes = get(described.nodes());
            Node controller = get(described.controller());
            return nodes.size() + " " + nodes.contains(controller) + " " + get(described.clusterId()).length();
        });
        tell("describeFeatures", () -> new TreeSet<>(
            get(admin.describeFeatures().featureMetadata()).finalizedFeatures().keySet()));
        tell("updateFeatures", () -> get(admin.updateFeatures(
            Map.of("metadata.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all()));
        tell("describeLogDirs", () -> {
            int node = get(admin.describeCluster().controller()).id();
            Map<String, LogDirDescription> dirs = get(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node);
            LogDirDescription dir = dirs.values().iterator().next();
            return dirs.size() + " " + dir.replicaInfos().containsKey(zero) + " " + (dir.totalBytes().getAsLong() > 0);
        });
        tell("describeReplicaLogDirs", () -> {
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, get(admin.describeCluster().controller()).id());
            return get(admin.describeReplicaLogDirs(List.of(replica)).all()).get(replica).getCurrentReplicaOffsetLag();
        });
        tell("describeMetadataQuorum", () -> get(admin.describeMetadataQuorum().quorumInfo()).leaderId());
        tell("unregisterBroker", () -> get(admin.unregisterBroker(4711).all()));
        tell("addRaftVoter", () -> get(admin.addRaftVoter(
            4711, Uuid.randomUuid(), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all()));
        tell("removeRaftVoter", () -> get(admin.removeRaftVoter(4711, Uuid.randomUuid()).all()));
        tell("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(10)).equals(Uuid.ZERO_UUID));
        tell("metrics", () -> admin.metrics().isEmpty());
    }

    private void transactions() {
        String id = group + "-transactional";
        tell("listTransactions", () -> get(admin.listTransactions().all()).size());
        tell("describeTransactions", () -> get(admin.describeTransactions(List.of(id)).all()).size());
        tell("fenceProducers", () -> get(admin.fenceProducers(List.of(id)).all()));
        tell("abortTransaction", () -> get(
            admin.abortTransaction(new AbortTransactionSpec(zero, 4711, (short) 0, 0)).all()));
    }

    private void security() {
        ResourcePattern pattern = new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL);
        AclBinding binding = new AclBinding(pattern,
            new AccessControlEntry("User:someone", "*", AclOperation.READ, AclPermissionType.ALLOW));
        tell("describeAcls", () -> get(admin.describeAcls(AclBindingFilter.ANY).values()).size());
        tell("createAcls", () -> get(admin.createAcls(List.of(binding)).all()));
        tell("deleteAcls", () -> get(admin.deleteAcls(List.of(binding.toFilter())).all()).size());
        tell("describeClientQuotas", () -> get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).size());
        tell("alterClientQuotas", () -> get(admin.alterClientQuotas(
            List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", topic)),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9)))),
            new AlterClientQuotasOptions().validateOnly(true)).all()));
        tell("describeUserScramCredentials", () -> get(admin.describeUserScramCredentials().all()).size());
        tell("alterUserScramCredentials", () -> get(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
            topic, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all()));
        tell("createDelegationToken", () -> get(admin.createDelegationToken().delegationToken()).tokenInfo().tokenId());
        tell("renewDelegationToken", () -> get(admin.renewDelegationToken(new byte[] {1}).expiryTimestamp()));
        tell("expireDelegationToken", () -> get(admin.expireDelegationToken(new byte[] {1}).expiryTimestamp()));
        tell("describeDelegationToken", () -> get(admin.describeDelegationToken().delegationTokens()).size());
    }

    private void moves() {
        tell("electLeaders", () -> get(admin.electLeaders(ElectionType.PREFERRED, Set.of(zero)).partitions()).get(zero)
            .map(error -> error.getClass().getSimpleName()).orElse("elected"));
        tell("alterPartitionReassignments", () -> get(
            admin.alterPartitionReassignments(Map.of(zero, Optional.of(new NewPartitionReassignment(
                List.of(get(admin.describeCluster().controller()).id()))))).all()));
        tell("listPartitionReassignments", () -> get(admin.listPartitionReassignments().reassignments()).size());
        tell("alterReplicaLogDirs", () -> get(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(
            topic, 0, get(admin.describeCluster().controller()).id()), "/nowhere")).all()));
    }

    private void endings() {
        tell("deleteTopics", () -> {
            get(admin.deleteTopics(List.of(topic)).all());
            return get(admin.listTopics().names()).contains(topic);
        });
        tell("close", () -> {
            admin.close(Duration.ofSeconds(10));
            return "closed";
        });
    }
}
