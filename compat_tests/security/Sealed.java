import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Producers and consumers with the settings of a test: see `compat_tests/clients/java/__init__.py`. */
public class Sealed {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            List<String> answer;
            try {
                answer = answer(words, in);
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                StringBuilder text = new StringBuilder();
                for (; cause != null; cause = cause.getCause()) {
                    text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append("; ");
                }
                System.out.println("error " + text.toString().replace("\n", " "));
                continue;
            }
            System.out.println("ok " + answer.size());
            answer.forEach(System.out::println);
        }
    }

    private static List<String> answer(String[] words, BufferedReader in) throws Exception {
        List<String> answer = new ArrayList<>();
        switch (words[0]) {
            case "open":
                PRODUCERS.put(words[1], new KafkaProducer<>(settings(words[2], in)));
                break;
            case "send":
                answer.add("" + PRODUCERS.get(words[1]).send(new ProducerRecord<>(words[2], 0, null, words[3])).get().offset());
                break;
            case "close":
                PRODUCERS.remove(words[1]).close(Duration.ZERO);
                break;
            case "read":
                read(words[1], Integer.parseInt(words[2]), settings(words[3], in), answer);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        return answer;
    }

    private static void read(String topic, int count, Properties settings, List<String> answer) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.currentTimeMillis() + 40_000;
            while (answer.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    answer.add(record.value());
                }
            }
        }
    }

    private static Properties settings(String count, BufferedReader in) throws Exception {
        Properties settings = new Properties();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("max.block.ms", "20000");
        for (int left = Integer.parseInt(count); left > 0; left--) {
            String[] pair = in.readLine().split("=", 2);
            settings.put(pair[0], pair[1].replace("\\n", "\n"));
        }
        return settings;
    }
}
