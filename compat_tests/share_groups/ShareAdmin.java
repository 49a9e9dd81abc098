import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsResult;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The admin client of 4.1 and later with one share group, empty and with a member. The arguments are an address,
 * the group, and a topic of two partitions with ten records each. A line for each step: its name and its outcome.
 */
public final class ShareAdmin {
    private static Admin admin;
    private static String group;
    private static String topic;

    private ShareAdmin() { }

    public static void main(String[] arguments) throws Exception {
        group = arguments[1];
        topic = arguments[2];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        admin = Admin.create(settings);
        Map<TopicPartition, Long> starts = Map.of(new TopicPartition(topic, 0), 3L, new TopicPartition(topic, 1), 5L);
        Callable<Object> alter = () -> get(admin.alterShareGroupOffsets(group, starts).all());
        Callable<Object> deleteOffsets = () -> get(admin.deleteShareGroupOffsets(group, Set.of(topic)).all());
        Callable<Object> delete = () -> get(admin.deleteShareGroups(List.of(group)).all());
        tell("describe a group that is not there", ShareAdmin::describe);
        tell("alter", alter);
        tell("offsets", ShareAdmin::offsets);
        tell("describe an empty group", ShareAdmin::describe);
        tell("list share groups", () -> list(ListGroupsOptions.forShareGroups()));
        tell("list by type", () -> list(new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))));
        tell("list by another type", () -> list(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))));
        settings.put("group.id", group);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        int count = 0;
        for (int tries = 0; count < 12 && tries < 300; tries++) {
            count += consumer.poll(Duration.ofMillis(100)).count();
        }
        consumer.commitSync();
        int all = count;
        tell("read", () -> all);
        tell("describe a group at work", ShareAdmin::describe);
        tell("alter a group at work", alter);
        tell("delete offsets of a group at work", deleteOffsets);
        tell("delete a group at work", delete);
        consumer.close();
        tell("alter again", alter);
        tell("delete offsets", deleteOffsets);
        tell("no offsets", ShareAdmin::offsets);
        tell("delete", delete);
        tell("describe a deleted group", ShareAdmin::describe);
        tell("delete again", delete);
        admin.close();
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(30, TimeUnit.SECONDS);
    }

    private static void tell(String step, Callable<Object> work) throws Exception {
        String outcome;
        try {
            outcome = String.valueOf(work.call());
        } catch (ExecutionException failure) {
            outcome = failure.getCause().getClass().getSimpleName();
        }
        System.out.println(step + "\t" + outcome);
    }

    /** State, members and the partitions that they have. */
    private static Object describe() throws Exception {
        ShareGroupDescription found = get(admin.describeShareGroups(List.of(group)).all()).get(group);
        int partitions = found.members().stream().mapToInt(one -> one.assignment().topicPartitions().size()).sum();
        return found.groupState() + " " + found.members().size() + " " + partitions;
    }

    private static Object list(ListGroupsOptions options) throws Exception {
        return get(admin.listGroups(options).all()).stream().filter(one -> one.groupId().equals(group))
            .map(one -> one.type().get() + " " + one.groupState().get() + " " + one.isSimpleConsumerGroup())
            .collect(Collectors.toList());
    }

    /** 4.1 has another result than later ones. */
    private static Object offsets() throws Exception {
        ListShareGroupOffsetsResult result =
            admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()));
        Map<Integer, Long> starts = new TreeMap<>();
        for (Map.Entry<?, ?> one : ((Map<?, ?>) get(result.all()).get(group)).entrySet()) {
            TopicPartition where = (TopicPartition) one.getKey();
            String method = one.getValue().getClass().getSimpleName().equals("OffsetAndMetadata") ? "offset" : "startOffset";
            starts.put(where.partition(), (Long) one.getValue().getClass().getMethod(method).invoke(one.getValue()));
        }
        return starts;
    }
}
