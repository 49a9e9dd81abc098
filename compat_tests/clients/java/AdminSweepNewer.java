import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.config.ConfigResource;

/** The operations of Admin that 4.3 has and 3.9 lacks. */
public class AdminSweepNewer {
    public AdminSweepNewer(AdminSweep sweep) {
        classic(sweep);
        streams(sweep, sweep.group + "-streams");
        share(sweep, sweep.group + "-share");
        sweep.tell("listConfigResources", () -> AdminSweep.get(sweep.admin.listConfigResources(
            Set.of(ConfigResource.Type.TOPIC), new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all())
            .contains(new ConfigResource(ConfigResource.Type.TOPIC, sweep.topic)));
        sweep.tell("forceTerminateTransaction", () -> AdminSweep.get(
            sweep.admin.forceTerminateTransaction(sweep.group + "-transactional").result()));
    }

    private static void classic(AdminSweep sweep) {
        String group = sweep.group + "-classic";
        sweep.tell("listGroups", () -> {
            AdminSweep.get(sweep.admin.alterConsumerGroupOffsets(group, Map.of(sweep.zero, new OffsetAndMetadata(1))).all());
            return AdminSweep.get(sweep.admin.listGroups().all()).stream()
                .filter(listing -> listing.groupId().equals(group)).map(GroupListing::groupState).toList();
        });
        sweep.tell("describeClassicGroups", () -> AdminSweep.get(
            sweep.admin.describeClassicGroups(List.of(group)).all()).get(group).state());
    }

    private static void streams(AdminSweep sweep, String group) {
        sweep.tell("alterStreamsGroupOffsets", () -> AdminSweep.get(
            sweep.admin.alterStreamsGroupOffsets(group, Map.of(sweep.zero, new OffsetAndMetadata(2))).all()));
        sweep.tell("listStreamsGroupOffsets", () -> AdminSweep.get(
            sweep.admin.listStreamsGroupOffsets(Map.of(group, new ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group)).get(sweep.zero).offset());
        sweep.tell("describeStreamsGroups", () -> AdminSweep.get(
            sweep.admin.describeStreamsGroups(List.of(group)).all()).size());
        sweep.tell("deleteStreamsGroupOffsets", () -> AdminSweep.get(
            sweep.admin.deleteStreamsGroupOffsets(group, Set.of(sweep.zero)).all()));
        sweep.tell("deleteStreamsGroups", () -> AdminSweep.get(sweep.admin.deleteStreamsGroups(List.of(group)).all()));
    }

    private static void share(AdminSweep sweep, String group) {
        sweep.tell("alterShareGroupOffsets", () -> AdminSweep.get(
            sweep.admin.alterShareGroupOffsets(group, Map.of(sweep.zero, 2L)).all()));
        sweep.tell("listShareGroupOffsets", () -> {
            SharePartitionOffsetInfo found = AdminSweep.get(
                sweep.admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group)).get(sweep.zero);
            return found.startOffset() + " " + found.lag();
        });
        sweep.tell("describeShareGroups", () -> {
            ShareGroupDescription found = AdminSweep.get(
                sweep.admin.describeShareGroups(List.of(group)).all()).get(group);
            return found.groupState() + " " + found.members().size();
        });
        sweep.tell("deleteShareGroupOffsets", () -> AdminSweep.get(
            sweep.admin.deleteShareGroupOffsets(group, Set.of(sweep.topic)).all()));
        sweep.tell("unregisterController", () -> AdminSweep.get(sweep.admin.unregisterController(4711).all()));
        sweep.tell("deleteShareGroups", () -> AdminSweep.get(sweep.admin.deleteShareGroups(List.of(group)).all()));
    }
}
