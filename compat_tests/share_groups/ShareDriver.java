import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's Java share consumers of 4.1 and later behind lines of text: one command a line on standard input,
 * fields separated by tabs. An answer is `ok N` and N lines, or `error TEXT`. A missing text is `-`.
 */
public final class ShareDriver {
    /** A consumer, what it has polled and not acknowledged, and what its callback was told. */
    private static final class Member {
        final KafkaShareConsumer<String, String> consumer;
        final Map<String, ConsumerRecord<String, String>> records = new HashMap<>();
        final List<String> told = new ArrayList<>();

        Member(Properties settings) {
            consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, failure) -> offsets.forEach((where, which) ->
                which.forEach(offset -> told.add(place(where) + "\t" + offset + "\t" + name(failure)))));
        }
    }

    private final String bootstrap;
    private final BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Member> members = new HashMap<>();

    private ShareDriver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        new ShareDriver(arguments[0]).serve();
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
        Member member = members.get(command[1]);
        switch (command[0]) {
            case "open": return open(command[1], command[2], command[3], Arrays.copyOfRange(command, 4, command.length));
            case "poll": return poll(member, Duration.ofMillis(Long.parseLong(command[2])));
            case "acknowledge": return acknowledge(member, Integer.parseInt(command[2]));
            case "commit-sync": return results(member.consumer.commitSync(Duration.ofMillis(Long.parseLong(command[2]))));
            case "commit-async": member.consumer.commitAsync(); return List.of();
            case "told": return told(member);
            case "wake": member.consumer.wakeup(); return List.of();
            case "unsubscribe": member.consumer.unsubscribe(); return List.of();
            case "lock-timeout": return lockTimeout(member);
            case "close":
                members.remove(command[1]);
                member.consumer.close(Duration.ofMillis(Long.parseLong(command[2])));
                return told(member);
            default: throw new IllegalArgumentException(command[0]);
        }
    }

    /** The settings are `name=value`. */
    private List<String> open(String identity, String group, String topics, String[] settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("group.id", group);
        all.put("client.id", identity);
        for (String setting : settings) {
            String[] sides = setting.split("=", 2);
            all.put(sides[0], sides[1]);
        }
        Member member = new Member(all);
        member.consumer.subscribe(List.of(topics.split(",")));
        members.put(identity, member);
        return List.of();
    }

    private static List<String> poll(Member member, Duration patience) {
        List<String> lines = new ArrayList<>();
        for (ConsumerRecord<String, String> record : member.consumer.poll(patience)) {
            String place = record.topic() + "\t" + record.partition() + "\t" + record.offset();
            member.records.put(place, record);
            lines.add(place + "\t" + record.deliveryCount().orElseThrow() + "\t" + text(record.key()) + "\t"
                + text(record.value()));
        }
        return lines;
    }

    /** Lines of topic, partition, offset and type follow. */
    private List<String> acknowledge(Member member, int count) throws Exception {
        List<String[]> lines = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            lines.add(in.readLine().split("\t"));
        }
        for (String[] line : lines) {
            String place = line[0] + "\t" + line[1] + "\t" + line[2];
            member.consumer.acknowledge(member.records.get(place), AcknowledgeType.valueOf(line[3]));
        }
        return List.of();
    }

    private static List<String> results(Map<TopicIdPartition, Optional<KafkaException>> results) {
        List<String> lines = new ArrayList<>();
        results.forEach((where, failure) -> lines.add(place(where) + "\t" + name(failure.orElse(null))));
        return lines;
    }

    private static List<String> told(Member member) {
        List<String> told = new ArrayList<>(member.told);
        member.told.clear();
        return told;
    }

    /** Not in 4.1. */
    private static List<String> lockTimeout(Member member) throws Exception {
        Object timeout = member.consumer.getClass().getMethod("acquisitionLockTimeoutMs").invoke(member.consumer);
        return List.of(String.valueOf(((Optional<?>) timeout).orElse(null)));
    }

    private static String place(TopicIdPartition where) {
        return where.topic() + "\t" + where.partition();
    }

    private static String name(Exception failure) {
        return failure == null ? "-" : failure.getClass().getSimpleName();
    }

    private static String text(String text) {
        return text == null ? "-" : text;
    }
}
