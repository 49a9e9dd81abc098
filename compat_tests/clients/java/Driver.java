import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java client behind lines of text: one command a line on standard input, fields separated by tabs.
 * An answer is `ok N` and N lines, or `error TEXT`. Bytes are base64, null is `-`.
 */
public final class Driver {
    private static final Base64.Encoder ENCODER = Base64.getEncoder();
    private final String bootstrap;
    private final BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Member> members = new HashMap<>();

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        new Driver(arguments[0]).serve();
    }

    private void serve() throws Exception {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                List<String> answer = answer(line.split("\t", -1));
                out.println("ok " + answer.size());
                answer.forEach(out::println);
            } catch (Exception failure) {
                out.println("error " + failure.toString().replace('\n', ' '));
            }
            out.flush();
        }
    }

    private List<String> answer(String[] command) throws Exception {
        switch (command[0]) {
            case "create": return create(command[1], Integer.parseInt(command[2]));
            case "produce": return produce(command[1], command[2], Integer.parseInt(command[3]));
            case "read":
                return read(
                    offsets(command[1], command[2]), Integer.parseInt(command[3]), command[4], command[5]);
            case "offset-at": return offsetAt(topicPartition(command), Long.parseLong(command[3]));
            case "commit": return commit(command[1], offsets(command[2], command[3]));
            case "committed": return committed(command[1], command[2], command[3]);
            case "join": return join(command[1], command[2], command[3]);
            case "state": return members.get(command[1]).state();
            case "leave": return members.remove(command[1]).leave();
            default: throw new IllegalArgumentException(command[0]);
        }
    }

    private static TopicPartition topicPartition(String[] command) {
        return new TopicPartition(command[1], Integer.parseInt(command[2]));
    }

    private static Map<TopicPartition, Long> offsets(String topic, String text) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        for (String pair : text.split(",")) {
            String[] sides = pair.split(":");
            offsets.put(new TopicPartition(topic, Integer.parseInt(sides[0])), Long.parseLong(sides[1]));
        }
        return offsets;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : ENCODER.encodeToString(bytes);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder();
        line.append(record.partition()).append('\t').append(record.offset()).append('\t')
            .append(record.timestamp()).append('\t').append(text(record.key())).append('\t')
            .append(text(record.value()));
        for (Header header : record.headers()) {
            line.append('\t').append(header.key()).append('=').append(text(header.value()));
        }
        return line.toString();
    }

    private Properties consumerSettings(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        if (group != null) {
            settings.put("group.id", group);
        }
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("heartbeat.interval.ms", "300");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private List<String> create(String topic, int partitions) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get(45, TimeUnit.SECONDS);
            // Apache Kafka answers before it has made every log. An idempotent producer whose first batch comes too
            // early for a log and whose second does not is out of order there for ever.
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            for (int partition = 0; partition < partitions; partition++) {
                ends.put(new TopicPartition(topic, partition), OffsetSpec.latest());
            }
            admin.listOffsets(ends).all().get(45, TimeUnit.SECONDS);
        }
        return List.of();
    }

    private List<String> produce(String topic, String codec, int count) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            records.add(record(topic, in.readLine().split("\t", -1)));
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        List<String> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                futures.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : futures) {
                RecordMetadata metadata = future.get(45, TimeUnit.SECONDS);
                answers.add(metadata.partition() + "\t" + metadata.offset());
            }
        }
        return answers;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String[] fields) {
        Long timestamp = fields[1].equals("-") ? null : Long.valueOf(fields[1]);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            topic, Integer.valueOf(fields[0]), timestamp, bytes(fields[2]), bytes(fields[3]));
        for (String header : Arrays.asList(fields).subList(4, fields.length)) {
            String[] sides = header.split("=", 2);
            record.headers().add(sides[0], bytes(sides[1]));
        }
        return record;
    }

    private List<String> read(Map<TopicPartition, Long> starts, int count, String fetchBytes, String reset) {
        List<String> records = new ArrayList<>();
        Properties settings = consumerSettings(null);
        settings.put("max.partition.fetch.bytes", fetchBytes);
        settings.put("auto.offset.reset", reset);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(starts.keySet());
            starts.forEach(consumer::seek);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(45);
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> records.add(text(record)));
            }
        }
        return records;
    }

    private List<String> offsetAt(TopicPartition where, long timestamp) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(null))) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(where, timestamp)).get(where);
            return found == null ? List.of() : List.of(Long.toString(found.offset()));
        }
    }

    private List<String> commit(String group, Map<TopicPartition, Long> offsets) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(group))) {
            Map<TopicPartition, OffsetAndMetadata> commits = new HashMap<>();
            offsets.forEach((where, offset) -> commits.put(where, new OffsetAndMetadata(offset)));
            consumer.commitSync(commits);
        }
        return List.of();
    }

    private List<String> committed(String group, String topic, String partitions) {
        Set<TopicPartition> wanted = new HashSet<>();
        for (String partition : partitions.split(",")) {
            wanted.add(new TopicPartition(topic, Integer.parseInt(partition)));
        }
        List<String> answers = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(group))) {
            consumer.committed(wanted).forEach((where, offset) ->
                answers.add(where.partition() + "\t" + (offset == null ? "-" : offset.offset())));
        }
        return answers;
    }

    private List<String> join(String id, String group, String topic) {
        Member member = new Member(consumerSettings(group), topic);
        members.put(id, member);
        member.start();
        return List.of();
    }

    /** A consumer of a group that polls in a thread of its own and commits what it got. */
    private static final class Member extends Thread {
        private final Properties settings;
        private final String topic;
        private final List<String> unread = new ArrayList<>();
        private String assigned = "";
        private Exception failure;
        private volatile boolean leaving;

        Member(Properties settings, String topic) {
            this.settings = settings;
            this.topic = topic;
            setDaemon(true);
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of(topic));
                boolean pending = false;
                while (pending || !leaving) {
                    List<String> records = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(text(record)));
                    publish(records, consumer.assignment());
                    if (pending || !records.isEmpty()) {
                        pending = !committed(consumer);
                    }
                }
            } catch (Exception problem) {
                synchronized (this) {
                    failure = problem;
                }
            }
        }

        private static boolean committed(KafkaConsumer<byte[], byte[]> consumer) {
            try {
                consumer.commitSync();
                return true;
            } catch (CommitFailedException | RebalanceInProgressException rebalance) {
                return false;
            }
        }

        private synchronized void publish(List<String> records, Set<TopicPartition> assignment) {
            unread.addAll(records);
            StringBuilder numbers = new StringBuilder();
            assignment.forEach(where -> numbers.append(numbers.length() == 0 ? "" : ",").append(where.partition()));
            assigned = numbers.toString();
        }

        /** The assignment, then the records since the last call. */
        synchronized List<String> state() throws Exception {
            if (failure != null) {
                throw failure;
            }
            List<String> lines = new ArrayList<>(List.of(assigned));
            lines.addAll(unread);
            unread.clear();
            return lines;
        }

        List<String> leave() throws Exception {
            leaving = true;
            join(45_000);
            return state();
        }
    }
}
