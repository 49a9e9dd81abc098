import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Operations of Kafka's Java client, many at once, behind lines of text. A request is `run ID BOOTSTRAP OPERATION
 * NAME SETTING=VALUE ...`, separated by tabs; NAME is that of the client, the topic, the group and the transaction.
 * A response is `ID ok VALUE ...` or `ID failed EXCEPTION TEXT`. A member of a group goes on after its work until
 * the line `release ID` comes.
 */
public final class StoryClient {
    private static final int RECORDS = 3;
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, CountDownLatch> holding = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        new StoryClient().serve();
        // Nobody hears what is still open.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService threads = Executors.newCachedThreadPool();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("release")) {
                holding.get(words[1]).countDown();
                continue;
            }
            holding.put(words[1], new CountDownLatch(1));
            threads.submit(() -> respond(words));
        }
    }

    private void respond(String[] words) {
        String text;
        try {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", words[2]);
            settings.put("client.id", words[4]);
            for (int i = 5; i < words.length; i++) {
                String[] sides = words[i].split("=", 2);
                settings.put(sides[0], sides[1]);
            }
            text = String.join("\t", new ArrayList<>(List.of(words[1], "ok")) {{
                addAll(run(words[3], words[4], settings, holding.get(words[1])));
            }});
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause instanceof ExecutionException || (cause.getClass() == KafkaException.class && cause.getCause() != null)) {
                cause = cause.getCause();
            }
            text = words[1] + "\tfailed\t" + cause.getClass().getSimpleName() + "\t" + String.valueOf(failure).replace('\n', ' ').replace('\t', ' ');
        }
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }

    private static Collection<String> run(String operation, String name, Properties settings, CountDownLatch released)
        throws Exception {
        TopicPartition zero = new TopicPartition(name, 0);
        switch (operation) {
            case "produce": return produce(name, settings);
            case "transact": return transact(zero, settings);
            case "read": return read(zero, settings, false);
            case "read_validated": return read(zero, settings, true);
            case "group": return group(name, settings, released, "classic");
            case "consumer": return group(name, settings, released, "consumer");
            case "share": return share(name, settings, released);
            default: break;
        }
        try (Admin admin = Admin.create(settings)) {
            return administer(admin, operation, name, zero);
        }
    }

    private static Properties strings(Properties settings) {
        Properties all = new Properties();
        all.putAll(settings);
        all.put("key.serializer", StringSerializer.class.getName());
        all.put("value.serializer", StringSerializer.class.getName());
        all.put("key.deserializer", StringDeserializer.class.getName());
        all.put("value.deserializer", StringDeserializer.class.getName());
        return all;
    }

    private static Collection<String> produce(String topic, Properties settings) throws Exception {
        List<String> offsets = new ArrayList<>();
        KafkaProducer<String, String> producer = new KafkaProducer<>(strings(settings));
        try {
            for (int i = 0; i < RECORDS; i++) {
                offsets.add(String.valueOf(producer.send(new ProducerRecord<>(topic, 0, null, "v" + i)).get().offset()));
            }
        } finally {
            producer.close(Duration.ZERO);
        }
        return offsets;
    }

    private static Collection<String> transact(TopicPartition zero, Properties settings) throws Exception {
        Properties all = strings(settings);
        all.put("transactional.id", zero.topic());
        KafkaProducer<String, String> producer = new KafkaProducer<>(all);
        try {
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(zero.topic(), 0, null, "v" + i)).get();
            }
            producer.sendOffsetsToTransaction(
                Map.of(zero, new OffsetAndMetadata(RECORDS)), new ConsumerGroupMetadata(zero.topic()));
            producer.commitTransaction();
        } finally {
            producer.close(Duration.ZERO);
        }
        return List.of();
    }

    private static Properties consuming(Properties settings) {
        Properties all = strings(settings);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        return all;
    }

    /** Values as they come, until all are there; the time that the client has for all of it is that of its API. */
    private static List<String> values(KafkaConsumer<String, String> consumer, Properties settings) {
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + Long.parseLong(settings.getProperty("default.api.timeout.ms")) * 1_000_000;
        while (new TreeSet<>(values).size() < RECORDS) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("got " + values);
            }
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                values.add(record.value());
            }
        }
        return values;
    }

    private static Collection<String> read(TopicPartition zero, Properties settings, boolean validates) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(settings));
        try {
            consumer.assign(List.of(zero));
            if (validates) {
                consumer.seek(zero, new OffsetAndMetadata(0, Optional.of(0), ""));
            }
            return values(consumer, settings);
        } finally {
            close(consumer);
        }
    }

    private static void close(KafkaConsumer<String, String> consumer) {
        consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(5)));
    }

    private static Collection<String> group(
        String name, Properties settings, CountDownLatch released, String protocol) {
        Properties all = consuming(settings);
        all.put("group.id", name);
        all.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            all.put("heartbeat.interval.ms", "200");
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(all);
        try {
            consumer.subscribe(List.of(name));
            // A member that joins again begins at what is committed: values may come twice.
            Collection<String> values = new TreeSet<>(values(consumer, settings));
            while (released.getCount() > 0) {
                consumer.poll(Duration.ofMillis(100));
            }
            consumer.commitSync(Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(RECORDS)));
            return values;
        } finally {
            close(consumer);
        }
    }

    private static Collection<String> share(String name, Properties settings, CountDownLatch released) {
        Properties all = strings(settings);
        all.put("group.id", name);
        all.put("share.acknowledgement.mode", "explicit");
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(all);
        try {
            consumer.subscribe(List.of(name));
            TreeSet<String> values = new TreeSet<>();
            long deadline = System.nanoTime() + Long.parseLong(settings.getProperty("default.api.timeout.ms")) * 1_000_000;
            while (values.size() < RECORDS || released.getCount() > 0) {
                if (values.size() < RECORDS && System.nanoTime() > deadline) {
                    throw new TimeoutException("got " + values);
                }
                boolean got = false;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    got = true;
                    values.add(record.value());
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                if (got) {
                    for (Optional<KafkaException> failure : consumer.commitSync(Duration.ofSeconds(20)).values()) {
                        if (failure.isPresent()) {
                            throw failure.get();
                        }
                    }
                }
            }
            return values;
        } finally {
            consumer.close(Duration.ofSeconds(5));
        }
    }

    private static Collection<String> administer(Admin admin, String operation, String name, TopicPartition zero)
        throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        switch (operation) {
            case "create_topics": return none(admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
            case "delete_topics": return none(admin.deleteTopics(List.of(name)).all());
            case "create_partitions":
                return none(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all());
            case "describe_configs":
                return List.of(admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
            case "alter_configs":
                return none(admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                    new ConfigEntry("retention.ms", "86400001"), AlterConfigOp.OpType.SET)))).all());
            case "delete_records":
                return none(admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(2))).all());
            case "list_groups":
                return List.of(String.valueOf(
                    admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(name))));
            case "describe_groups":
                return List.of(admin.describeConsumerGroups(List.of(name)).all().get().get(name).groupState().toString());
            case "delete_groups": return none(admin.deleteConsumerGroups(List.of(name)).all());
            case "delete_group_offsets":
                return none(admin.deleteConsumerGroupOffsets(name, java.util.Set.of(zero)).all());
            case "describe_topics":
                return List.of(String.valueOf(
                    admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size()));
            case "describe_cluster":
                return List.of(String.valueOf(admin.describeCluster().nodes().get().size()));
            case "describe_log_dirs":
                return List.of(String.valueOf(admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size()));
            case "describe_producers":
                return List.of(String.valueOf(
                    admin.describeProducers(List.of(zero)).all().get().get(zero).activeProducers().size()));
            case "list_transactions":
                admin.listTransactions().all().get();
                return List.of();
            case "list_config_resources":
                admin.listConfigResources().all().get();
                return List.of();
            case "list_reassignments":
                return List.of(String.valueOf(admin.listPartitionReassignments().reassignments().get().size()));
            case "describe_quorum":
                return List.of(String.valueOf(admin.describeMetadataQuorum().quorumInfo().get().voters().size()));
            case "describe_quotas":
                admin.describeClientQuotas(org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get();
                return List.of();
            case "describe_share_groups":
                return List.of(admin.describeShareGroups(List.of(name)).all().get().get(name).groupState().toString());
            case "list_share_group_offsets":
                Map<TopicPartition, SharePartitionOffsetInfo> found = admin.listShareGroupOffsets(
                    Map.of(name, new ListShareGroupOffsetsSpec().topicPartitions(List.of(zero))))
                    .partitionsToOffsetInfo(name).get();
                return List.of(String.valueOf(found.size()));
            default: throw new IllegalArgumentException(operation);
        }
    }

    private static Collection<String> none(KafkaFuture<Void> done) throws Exception {
        done.get();
        return List.of();
    }
}
