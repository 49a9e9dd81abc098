import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Clients of the 0.10 years: messages with timestamps (format v1), Produce in version 2, Fetch in version 2 (0.10.0) or
 * 3. Arguments: bootstrap, group, the first timestamp, then codec=topic for a topic to fill and read, =topic for one that
 * another client has filled with as many records. Prints what it saw, a fact a line.
 */
public final class TimestampClient {
    private static final int COUNT = 200;

    public static void main(String[] arguments) throws Exception {
        long firstTimestamp = Long.parseLong(arguments[2]);
        Map<String, Integer> missing = new LinkedHashMap<String, Integer>();
        for (int i = 3; i < arguments.length; i++) {
            String[] sides = arguments[i].split("=");
            if (!sides[0].isEmpty()) {
                produce(arguments[0], sides[0], sides[1], firstTimestamp);
            }
            missing.put(sides[1], COUNT);
        }
        read(arguments[0], arguments[1], missing);
        System.exit(0);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static void produce(String bootstrap, String codec, String topic, long firstTimestamp) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        settings.put("linger.ms", "20");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<byte[], byte[]>(settings);
        List<Future<RecordMetadata>> futures = new ArrayList<Future<RecordMetadata>>();
        for (int i = 0; i < COUNT; i++) {
            byte[] key = i % 10 == 0 ? null : ("key-" + i).getBytes("UTF-8");
            byte[] value = i % 50 == 1 ? null : ("value-" + i + "-of-many-that-compress-well-well-well").getBytes("UTF-8");
            // Not in the order of time.
            Long timestamp = firstTimestamp + i * 37 % COUNT;
            futures.add(producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, timestamp, key, value)));
        }
        for (Future<RecordMetadata> future : futures) {
            RecordMetadata placed = future.get(30, TimeUnit.SECONDS);
            System.out.println(topic + "\tacknowledged\t" + placed.offset() + "\t" + placed.timestamp());
        }
        producer.close();
    }

    private static void read(String bootstrap, String group, Map<String, Integer> missing) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        // Small, so that a fetch ends in the middle of a set.
        settings.put("max.partition.fetch.bytes", "20000");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<byte[], byte[]>(settings);
        Collection<String> topics = new ArrayList<String>(missing.keySet());
        consumer.subscribe(topics);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!missing.isEmpty()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("missing " + missing);
            }
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(500)) {
                System.out.println(one.topic() + "\tread\t" + one.offset() + "\t" + one.timestamp() + "\t"
                    + one.timestampType() + "\t" + text(one.key()) + "\t" + text(one.value()));
                int left = missing.get(one.topic()) - 1;
                missing.put(one.topic(), left);
            }
            missing.values().removeAll(Collections.singleton(0));
        }
        consumer.commitSync();
        for (String topic : topics) {
            OffsetAndMetadata committed = consumer.committed(new TopicPartition(topic, 0));
            System.out.println(topic + "\tcommitted\t" + committed.offset());
        }
        consumer.close();
    }
}
