import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's share consumer behind lines of text, as `Driver` has them. The arguments are the addresses, the group,
 * and the topics. Commands:
 *
 * <p>poll MS: a line for each record: topic, partition, offset, delivery count and value.
 *
 * <p>settle TYPE ...: acknowledges the records of the last poll, in their order, and commits; a line for each
 * partition: topic, number, and the error or nothing.
 */
public final class ShareWorker {
    private static final List<ConsumerRecord<String, String>> polled = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("max.poll.records", "50");
        properties.put("reconnect.backoff.max.ms", "300");
        // close() waits for half a minute where it does not know yet that a node of a session is back.
        properties.put("metadata.max.age.ms", "1000");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(Arrays.asList(arguments).subList(2, arguments.length));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                try {
                    List<String> answer = answer(consumer, line.split("\t", -1));
                    out.println("ok " + answer.size());
                    answer.forEach(out::println);
                } catch (RuntimeException failure) {
                    out.println("error " + failure.toString().replace('\n', ' '));
                }
                out.flush();
            }
        }
    }

    private static List<String> answer(KafkaShareConsumer<String, String> consumer, String[] command) {
        List<String> lines = new ArrayList<>();
        if (command[0].equals("poll")) {
            polled.clear();
            consumer.poll(Duration.ofMillis(Long.parseLong(command[1]))).forEach(polled::add);
            polled.forEach(record -> lines.add(
                String.join(
                    "\t",
                    record.topic(),
                    "" + record.partition(),
                    "" + record.offset(),
                    "" + record.deliveryCount().orElse((short) -1),
                    record.value())));
            return lines;
        }
        for (int at = 0; at < polled.size(); at++) {
            consumer.acknowledge(polled.get(at), AcknowledgeType.valueOf(command[at + 1]));
        }
        consumer.commitSync(Duration.ofSeconds(60)).forEach((partition, error) -> lines.add(
            String.join(
                "\t",
                partition.topic(),
                "" + partition.partition(),
                error.map(one -> one.toString().replace('\n', ' ')).orElse(""))));
        return lines;
    }
}
