import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Clients of the years 0.8 and 0.9: a producer of message sets, and the simple consumer (Metadata, ListOffsets and
 * Fetch in version 0). Arguments: host, port, and codec=topic for each topic. Of each it prints what it saw, a fact a line.
 */
public final class OldProducer {
    private static final int COUNT = 200;

    public static void main(String[] arguments) throws Exception {
        String host = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        for (int i = 2; i < arguments.length; i++) {
            String[] sides = arguments[i].split("=");
            produce(host + ":" + port, sides[0], sides[1]);
            read(host, port, sides[1]);
        }
        System.exit(0);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static void produce(String bootstrap, String codec, String topic) throws Exception {
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
            futures.add(producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, key, value)));
        }
        for (Future<RecordMetadata> future : futures) {
            System.out.println(topic + "\tacknowledged\t" + future.get(30, TimeUnit.SECONDS).offset());
        }
        producer.close();
    }

    private static void read(String host, int port, String topic) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(host, port, 30000, 1024 * 1024, "old");
        List<String> topics = new ArrayList<String>();
        topics.add(topic);
        for (TopicMetadata metadata : consumer.send(new TopicMetadataRequest(topics)).topicsMetadata()) {
            for (PartitionMetadata partition : metadata.partitionsMetadata()) {
                System.out.println(topic + "\tpartition\t" + partition.partitionId() + "\t" + partition.errorCode());
            }
        }
        System.out.println(topic + "\tearliest\t" + offset(consumer, topic, -2));
        System.out.println(topic + "\tlatest\t" + offset(consumer, topic, -1));
        long next = 0;
        while (next < COUNT) {
            // Small, so that a fetch ends in the middle of a set.
            FetchResponse answer = consumer.fetch(
                new FetchRequestBuilder().clientId("old").addFetch(topic, 0, next, 20000).build());
            if (answer.hasError()) {
                throw new IllegalStateException("error " + answer.errorCode(topic, 0));
            }
            for (MessageAndOffset one : answer.messageSet(topic, 0)) {
                if (one.offset() >= next) {
                    String key = one.message().hasKey() ? text(bytes(one.message().key())) : "-";
                    String value = one.message().isNull() ? "-" : text(bytes(one.message().payload()));
                    System.out.println(topic + "\tread\t" + one.offset() + "\t" + key + "\t" + value);
                    next = one.nextOffset();
                }
            }
        }
        consumer.close();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static long offset(SimpleConsumer consumer, String topic, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked =
            new HashMap<TopicAndPartition, PartitionOffsetRequestInfo>();
        asked.put(new TopicAndPartition(topic, 0), new PartitionOffsetRequestInfo(time, 1));
        OffsetResponse answer = consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "old"));
        if (answer.hasError()) {
            throw new IllegalStateException("error " + answer.errorCode(topic, 0));
        }
        return answer.offsets(topic, 0)[0];
    }
}
