import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * The first consumer with groups (0.9): JoinGroup, SyncGroup, Heartbeat, LeaveGroup in version 0, OffsetCommit 2,
 * OffsetFetch 1. Three members read a topic of three partitions; then one reads again from a sought offset.
 * Arguments: bootstrap, topic, group, how many records there are.
 */
public final class OldGroup {
    private static final Set<String> SEEN = Collections.newSetFromMap(new ConcurrentHashMap<String, Boolean>());
    private static final CountDownLatch PLACED = new CountDownLatch(3);

    public static void main(final String[] arguments) throws Exception {
        final int count = Integer.parseInt(arguments[3]);
        Thread[] members = new Thread[3];
        for (int i = 0; i < members.length; i++) {
            members[i] = new Thread() {
                @Override
                public void run() {
                    member(arguments[0], arguments[1], arguments[2], count);
                }
            };
            members[i].start();
        }
        for (Thread member : members) {
            member.join();
        }
        for (String record : SEEN) {
            System.out.println("read\t" + record);
        }
        System.out.println("placed\t" + (3 - PLACED.getCount()));
        KafkaConsumer<String, String> consumer = consumer(arguments[0], arguments[2]);
        for (int partition = 0; partition < 3; partition++) {
            TopicPartition where = new TopicPartition(arguments[1], partition);
            System.out.println("committed\t" + partition + "\t" + consumer.committed(where).offset());
        }
        TopicPartition first = new TopicPartition(arguments[1], 0);
        consumer.assign(Arrays.asList(first));
        consumer.seek(first, 7);
        ConsumerRecords<String, String> records = consumer.poll(30000);
        System.out.println("sought\t" + records.iterator().next().offset());
        consumer.seekToEnd(first);
        System.out.println("end\t" + consumer.position(first));
        consumer.close();
        System.exit(0);
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("heartbeat.interval.ms", "300");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<String, String>(settings);
    }

    private static void member(String bootstrap, String topic, String group, int count) {
        KafkaConsumer<String, String> consumer = consumer(bootstrap, group);
        consumer.subscribe(Arrays.asList(topic));
        boolean placed = false;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(45);
        while ((SEEN.size() < count || PLACED.getCount() > 0) && System.nanoTime() < deadline) {
            ConsumerRecords<String, String> records = consumer.poll(100);
            Collection<TopicPartition> assigned = consumer.assignment();
            if (!placed && assigned.size() == 1) {
                placed = true;
                PLACED.countDown();
            }
            for (ConsumerRecord<String, String> record : records) {
                SEEN.add(record.partition() + "\t" + record.offset() + "\t" + record.value());
            }
            if (!records.isEmpty()) {
                try {
                    consumer.commitSync();
                } catch (CommitFailedException rebalance) {
                    continue; // what was not committed comes again, to whoever owns it then
                }
            }
        }
        consumer.close();
    }
}
