import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * Kafka's own assignors, asked over stdin. A problem is some lines of words, the last of them "end":
 *
 * <pre>
 * range | uniform
 * topic NUMBER PARTITIONS
 * member ID INSTANCE-ID TOPICS ASSIGNMENT      (topics: 1,2; assignment: 1=0+3,2=1; - for none)
 *
 * streams STANDBY-REPLICAS
 * subtopology ID TASKS STATEFUL
 * member ID PROCESS-ID ACTIVE STANDBY OFFSETS  (offsets: 0=3=120,1=0=7)
 * </pre>
 *
 * The answer is "ID ASSIGNMENT" (streams: "ID ACTIVE STANDBY") for each member, then "end".
 */
public final class Assignors {
    private static final PrintWriter OUT =
        new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String[]> problem = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.equals("end")) {
                problem.add(line.split(" "));
                continue;
            }
            if (problem.get(0)[0].equals("streams")) {
                streams(problem);
            } else {
                consumers(problem);
            }
            OUT.println("end");
            problem.clear();
        }
        OUT.flush();
    }

    private static void consumers(List<String[]> problem) {
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (String[] words : problem) {
            if (words[0].equals("topic")) {
                counts.put(topicId(words[1]), Integer.parseInt(words[2]));
            } else if (words[0].equals("member")) {
                Set<Uuid> topics = new LinkedHashSet<>();
                if (!words[3].equals("-")) {
                    for (String topic : words[3].split(",")) {
                        topics.add(topicId(topic));
                    }
                }
                subscriptions.add(topics);
                Map<Uuid, Set<Integer>> assignment = new LinkedHashMap<>();
                read(words[4]).forEach((topic, partitions) -> {
                    assignment.put(topicId(topic), partitions);
                    Map<Integer, String> ofTopic = owners.computeIfAbsent(topicId(topic), id -> new HashMap<>());
                    partitions.forEach(partition -> ofTopic.put(partition, words[1]));
                });
                members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), optional(words[2]), topics, new Assignment(assignment)));
            }
        }
        ConsumerGroupPartitionAssignor assignor =
            problem.get(0)[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type =
            subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return counts.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        }).members().forEach((memberId, assignment) -> {
            Map<String, Set<Integer>> byNumber = new TreeMap<>();
            assignment.partitions().forEach((topicId, partitions) ->
                byNumber.put(Long.toString(topicId.getLeastSignificantBits()), partitions));
            OUT.println(memberId + " " + write(byNumber));
        });
    }

    private static void streams(List<String[]> problem) {
        Map<String, Integer> counts = new LinkedHashMap<>();
        Set<String> stateful = new HashSet<>();
        Map<String, MemberMetadataAndStateImpl> members = new LinkedHashMap<>();
        for (String[] words : problem) {
            if (words[0].equals("subtopology")) {
                counts.put(words[1], Integer.parseInt(words[2]));
                if (words[3].equals("1")) {
                    stateful.add(words[1]);
                }
            } else if (words[0].equals("member")) {
                members.put(words[1], new MemberMetadataAndStateImpl(
                    Optional.empty(), Optional.empty(), words[2], Map.of(), read(words[3]), read(words[4]), Map.of(),
                    readOffsets(words[5]), Map.of()));
            }
        }
        AssignmentConfigsImpl configs = new AssignmentConfigsImpl(Integer.parseInt(problem.get(0)[1]), List.of());
        new StickyTaskAssignor().assign(
            new org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl(members, configs),
            new TopologyDescriber() {
                @Override
                public List<String> subtopologies() {
                    return new ArrayList<>(counts.keySet());
                }

                @Override
                public int maxNumInputPartitions(String subtopologyId) {
                    return counts.get(subtopologyId);
                }

                @Override
                public boolean isStateful(String subtopologyId) {
                    return stateful.contains(subtopologyId);
                }
            }
        ).members().forEach((memberId, assignment) -> OUT.println(
            memberId + " " + write(assignment.activeTasks()) + " " + write(assignment.standbyTasks())));
    }

    private static Uuid topicId(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static Map<String, Set<Integer>> read(String word) {
        Map<String, Set<Integer>> assignment = new LinkedHashMap<>();
        if (!word.equals("-")) {
            for (String part : word.split(",")) {
                String[] sides = part.split("=");
                Set<Integer> partitions = new HashSet<>();
                for (String partition : sides[1].split("\\+")) {
                    partitions.add(Integer.parseInt(partition));
                }
                assignment.put(sides[0], partitions);
            }
        }
        return assignment;
    }

    private static Map<String, Map<Integer, Long>> readOffsets(String word) {
        Map<String, Map<Integer, Long>> offsets = new LinkedHashMap<>();
        if (!word.equals("-")) {
            for (String part : word.split(",")) {
                String[] words = part.split("=");
                offsets.computeIfAbsent(words[0], name -> new LinkedHashMap<>())
                    .put(Integer.parseInt(words[1]), Long.parseLong(words[2]));
            }
        }
        return offsets;
    }

    private static String write(Map<String, Set<Integer>> assignment) {
        List<String> parts = new ArrayList<>();
        assignment.forEach((name, partitions) -> {
            List<String> numbers = new ArrayList<>();
            new TreeSet<>(partitions).forEach(partition -> numbers.add(partition.toString()));
            if (!numbers.isEmpty()) {
                parts.add(name + "=" + String.join("+", numbers));
            }
        });
        return parts.isEmpty() ? "-" : String.join(",", parts);
    }
}
