import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's transactional producers and its consumers behind lines of text, as `Driver` has them: a call of the
 * library a line, its name, then the name of the producer or consumer, then arguments, separated by tabs. An
 * answer is `ok N` and N lines, or `error TEXT` with the exception and all its causes. A producer answers with
 * what was acknowledged since: topic, partition, offset and value. Values are text.
 */
public final class Transactions {
    private final BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Producing> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<String, String>> consumers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        new Transactions().serve();
        // Nobody is there any more: what is open stays open, as when a process is killed.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                List<String> answer = answer(line.split("\t", -1));
                out.println("ok " + answer.size());
                answer.forEach(out::println);
            } catch (RuntimeException failure) {
                out.println("error " + text(failure));
            }
            out.flush();
        }
    }

    private static String text(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = failure; one != null; one = one.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(one);
        }
        return text.toString().replace('\n', ' ');
    }

    private List<String> answer(String[] command) {
        switch (command[0]) {
            case "open": producers.put(command[1], new Producing(settings(command))); return List.of();
            case "consume": consumers.put(command[1], new KafkaConsumer<>(consumerSettings(command))); return List.of();
            case "assign": return assign(consumers.get(command[1]), command);
            case "poll": return poll(consumers.get(command[1]), Integer.parseInt(command[2]));
            case "leave": consumers.remove(command[1]).close(); return List.of();
            default: break;
        }
        Producing producing = producers.get(command[1]);
        KafkaProducer<String, String> producer = producing.producer;
        switch (command[0]) {
            case "init": producer.initTransactions(); break;
            case "begin": producer.beginTransaction(); break;
            case "send": producing.send(where(command, 2), command[4]); break;
            case "flush": producer.flush(); break;
            case "offsets": producer.sendOffsetsToTransaction(offsets(command), new ConsumerGroupMetadata(command[2])); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            case "acknowledged": break;
            case "close": producer.close(Duration.ofSeconds(5)); break;
            // With no time it sends nothing more.
            case "abandon": producer.close(Duration.ZERO); break;
            default: throw new IllegalArgumentException(command[0]);
        }
        return producing.acknowledged();
    }

    private static TopicPartition where(String[] command, int at) {
        return new TopicPartition(command[at], Integer.parseInt(command[at + 1]));
    }

    /** After the name: name=value. */
    private static Properties settings(String[] command) {
        Properties settings = new Properties();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        for (int at = 2; at < command.length; at++) {
            String[] sides = command[at].split("=", 2);
            settings.put(sides[0], sides[1]);
        }
        return settings;
    }

    private static Properties consumerSettings(String[] command) {
        Properties settings = settings(command);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("enable.auto.commit", "false");
        return settings;
    }

    /** After the group: topic, partition and offset of each. */
    private static Map<TopicPartition, OffsetAndMetadata> offsets(String[] command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int at = 3; at < command.length; at += 3) {
            offsets.put(where(command, at), new OffsetAndMetadata(Long.parseLong(command[at + 2])));
        }
        return offsets;
    }

    /**
     * After the name: topic, partition and offset of each, `-` to begin where the group has committed. Answers
     * with topic, partition, where it begins and where the partition ends.
     */
    private static List<String> assign(KafkaConsumer<String, String> consumer, String[] command) {
        Map<TopicPartition, String> starts = new HashMap<>();
        for (int at = 2; at < command.length; at += 3) {
            starts.put(where(command, at), command[at + 2]);
        }
        consumer.assign(starts.keySet());
        starts.forEach((where, start) -> {
            if (!start.equals("-")) {
                consumer.seek(where, Long.parseLong(start));
            }
        });
        List<String> lines = new ArrayList<>();
        consumer.endOffsets(starts.keySet()).forEach((where, end) ->
            lines.add(where.topic() + "\t" + where.partition() + "\t" + consumer.position(where) + "\t" + end));
        return lines;
    }

    private static List<String> poll(KafkaConsumer<String, String> consumer, int milliseconds) {
        List<String> lines = new ArrayList<>();
        consumer.poll(Duration.ofMillis(milliseconds)).forEach(record ->
            lines.add(record.topic() + "\t" + record.partition() + "\t" + record.offset() + "\t" + record.value()));
        return lines;
    }

    /** A producer and what it was told of its sends. */
    private static final class Producing {
        private final KafkaProducer<String, String> producer;
        private final List<String> acknowledged = new ArrayList<>();

        Producing(Properties settings) {
            producer = new KafkaProducer<>(settings);
        }

        void send(TopicPartition where, String value) {
            producer.send(new ProducerRecord<>(where.topic(), where.partition(), null, value), (metadata, failure) -> {
                if (failure == null) {
                    synchronized (acknowledged) {
                        acknowledged.add(
                            where.topic() + "\t" + where.partition() + "\t" + metadata.offset() + "\t" + value);
                    }
                }
            });
        }

        List<String> acknowledged() {
            synchronized (acknowledged) {
                List<String> lines = new ArrayList<>(acknowledged);
                acknowledged.clear();
                return lines;
            }
        }
    }
}
