import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

/**
 * The first consumer that looks offsets up by time (0.10.1, ListOffsets in version 1). Arguments: bootstrap, topic, and
 * timestamps. Prints a fact a line.
 */
public final class TimeLookup {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<byte[], byte[]>(settings);
        TopicPartition where = new TopicPartition(arguments[1], 0);
        for (int i = 2; i < arguments.length; i++) {
            long timestamp = Long.parseLong(arguments[i]);
            OffsetAndTimestamp found = consumer.offsetsForTimes(Collections.singletonMap(where, timestamp)).get(where);
            System.out.println("found\t" + (found == null ? "-" : found.offset() + "\t" + found.timestamp()));
        }
        System.out.println("begin\t" + consumer.beginningOffsets(Collections.singleton(where)).get(where));
        System.out.println("end\t" + consumer.endOffsets(Collections.singleton(where)).get(where));
        consumer.close();
        System.exit(0);
    }
}
