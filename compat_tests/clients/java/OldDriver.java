import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * What `Driver.java` does, with the first Java client that has groups (0.9): the same commands and answers. It knows
 * neither timestamps nor headers, makes no topics and finds no offsets by time.
 */
public final class OldDriver {
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";
    private final String bootstrap;
    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    private final PrintStream out = System.out;
    private final Map<String, Member> members = new HashMap<>();

    private OldDriver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        new OldDriver(arguments[0]).serve();
        System.exit(0);
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
            case "produce": return produce(command[1], command[2], Integer.parseInt(command[3]));
            case "read":
                return read(
                    offsets(command[1], command[2]), Integer.parseInt(command[3]), command[4], command[5]);
            case "commit": return commit(command[1], offsets(command[2], command[3]));
            case "committed": return committed(command[1], command[2], command[3].split(","));
            case "join":
                members.put(command[1], new Member(consumerSettings(command[2]), command[3]));
                members.get(command[1]).start();
                return Collections.emptyList();
            case "state": return members.get(command[1]).state();
            case "leave": return members.remove(command[1]).leave();
            default: throw new IllegalArgumentException(command[0]);
        }
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
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        return record.partition() + "\t" + record.offset() + "\t-1\t" + text(record.key()) + "\t" + text(record.value());
    }

    private Properties consumerSettings(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("heartbeat.interval.ms", "300");
        // A consumer that leaves asks once, and its request may be lost. The others wait for this time-out then.
        settings.put("session.timeout.ms", "20000");
        settings.put("request.timeout.ms", "30000");
        settings.put("key.deserializer", BYTES + "Deserializer");
        settings.put("value.deserializer", BYTES + "Deserializer");
        return settings;
    }

    private List<String> produce(String topic, String codec, int count) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        // By itself it tries only once.
        settings.put("retries", "1000");
        settings.put("max.in.flight.requests.per.connection", "1");
        settings.put("key.serializer", BYTES + "Serializer");
        settings.put("value.serializer", BYTES + "Serializer");
        List<String[]> lines = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            lines.add(in.readLine().split("\t", -1));
        }
        List<String> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (String[] fields : lines) {
                futures.add(producer.send(
                    new ProducerRecord<>(topic, Integer.valueOf(fields[0]), bytes(fields[2]), bytes(fields[3]))));
            }
            for (Future<RecordMetadata> future : futures) {
                RecordMetadata metadata = future.get(45, TimeUnit.SECONDS);
                answers.add(metadata.partition() + "\t" + metadata.offset());
            }
        }
        return answers;
    }

    private List<String> read(Map<TopicPartition, Long> starts, int count, String fetchBytes, String reset) {
        List<String> records = new ArrayList<>();
        Properties settings = consumerSettings("none");
        settings.put("max.partition.fetch.bytes", fetchBytes);
        settings.put("auto.offset.reset", reset);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(new ArrayList<>(starts.keySet()));
            starts.forEach(consumer::seek);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(45);
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(500).forEach(record -> records.add(text(record)));
            }
        }
        return records;
    }

    private List<String> commit(String group, Map<TopicPartition, Long> offsets) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(group))) {
            Map<TopicPartition, OffsetAndMetadata> commits = new HashMap<>();
            offsets.forEach((where, offset) -> commits.put(where, new OffsetAndMetadata(offset)));
            consumer.commitSync(commits);
        }
        return Collections.emptyList();
    }

    private List<String> committed(String group, String topic, String[] partitions) {
        List<String> answers = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(group))) {
            for (String partition : partitions) {
                OffsetAndMetadata found = consumer.committed(new TopicPartition(topic, Integer.parseInt(partition)));
                answers.add(partition + "\t" + (found == null ? "-" : found.offset()));
            }
        }
        return answers;
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
                consumer.subscribe(Arrays.asList(topic));
                boolean pending = false;
                while (pending || !leaving) {
                    List<String> records = new ArrayList<>();
                    consumer.poll(100).forEach(record -> records.add(text(record)));
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
            } catch (CommitFailedException rebalance) {
                return false;
            }
        }

        private synchronized void publish(List<String> records, Set<TopicPartition> assignment) {
            unread.addAll(records);
            StringBuilder numbers = new StringBuilder();
            for (TopicPartition where : assignment) {
                numbers.append(numbers.length() == 0 ? "" : ",").append(where.partition());
            }
            assigned = numbers.toString();
        }

        /** The assignment, then the records since the last call. */
        synchronized List<String> state() throws Exception {
            if (failure != null) {
                throw failure;
            }
            List<String> lines = new ArrayList<>(Arrays.asList(assigned));
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
