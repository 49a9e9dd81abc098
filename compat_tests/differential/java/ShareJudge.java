package kafka.server.share;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.fetch.InFlightBatch;
import org.apache.kafka.server.share.fetch.InFlightState;
import org.apache.kafka.server.share.fetch.ShareAcquiredRecords;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;
import sun.misc.Unsafe;

/** Kafka's own SharePartition, driven line by line. Each line is answered by one line that begins with "> ". */
public class ShareJudge {
    static final Uuid TOPIC = new Uuid(0, 5);
    static final int LOCK_MS = 10;
    static long nowMs = 0;

    static class Clock implements Time {
        public long milliseconds() { return nowMs; }
        public long hiResClockMs() { return nowMs; }
        public long nanoseconds() { return nowMs * 1_000_000; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
        public <T> T waitForFuture(CompletableFuture<T> future, long deadlineNs) { throw new IllegalStateException(); }
    }

    static class Timers implements org.apache.kafka.server.util.timer.Timer {
        final List<TimerTaskEntry> entries = new ArrayList<>();
        public void add(TimerTask task) { entries.add(new TimerTaskEntry(task, nowMs + task.delayMs)); }
        public int size() { return entries.size(); }
        public void close() { }
        public boolean advanceClock(long ms) {
            nowMs += ms;
            List<TimerTaskEntry> due = new ArrayList<>();
            for (Iterator<TimerTaskEntry> each = entries.iterator(); each.hasNext(); ) {
                TimerTaskEntry one = each.next();
                if (one.cancelled()) each.remove();
                else if (one.expirationMs <= nowMs) { due.add(one); each.remove(); }
            }
            for (TimerTaskEntry one : due) if (!one.cancelled()) one.timerTask.run();
            return !due.isEmpty();
        }
    }

    static class Configs extends GroupConfigManager {
        Configs() { super(null, null); }
        @Override
        public Optional<GroupConfig> groupConfig(String groupId) { return Optional.empty(); }
    }

    static class Store implements Persister {
        List<PersisterStateBatch> batches = List.of();
        long start;
        final ArrayDeque<CompletableFuture<WriteShareGroupStateResult>> waiting = new ArrayDeque<>();
        public CompletableFuture<InitializeShareGroupStateResult> initializeState(InitializeShareGroupStateParameters r) { throw new IllegalStateException(); }
        public CompletableFuture<DeleteShareGroupStateResult> deleteState(DeleteShareGroupStateParameters r) { throw new IllegalStateException(); }
        public CompletableFuture<ReadShareGroupStateSummaryResult> readSummary(ReadShareGroupStateSummaryParameters r) { throw new IllegalStateException(); }
        public void stop() { }
        public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters r) {
            PartitionAllData data = PartitionFactory.newPartitionAllData(0, 0, start, Errors.NONE.code(), null, batches);
            return CompletableFuture.completedFuture(new ReadShareGroupStateResult.Builder()
                .setTopicsData(List.of(new TopicData<>(TOPIC, List.of(data)))).build());
        }
        public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters r) {
            CompletableFuture<WriteShareGroupStateResult> future = new CompletableFuture<>();
            waiting.add(future);
            return future;
        }
        void answer(boolean ok) {
            short code = ok ? Errors.NONE.code() : Errors.COORDINATOR_NOT_AVAILABLE.code();
            waiting.remove().complete(new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC,
                List.of(PartitionFactory.newPartitionErrorData(0, code, ok ? null : "refused"))))).build());
        }
    }

    static SharePartition partition;
    static Store store;
    static Timers timers;

    static void load(String[] words, Configs configs) throws Exception {
        store = new Store();
        timers = new Timers();
        nowMs = 0;
        int locks = Integer.parseInt(words[1]), deliveries = Integer.parseInt(words[2]);
        store.start = Long.parseLong(words[3]);
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (int at = 4; at < words.length; at++) {
            String[] one = words[at].split(":");
            batches.add(new PersisterStateBatch(Long.parseLong(one[0]), Long.parseLong(one[1]),
                Byte.parseByte(one[2]), Short.parseShort(one[3])));
        }
        store.batches = batches;
        TopicIdPartition place = new TopicIdPartition(TOPIC, new TopicPartition("t", 0));
        // No log is asked, as each history has a start, nobody waits for records, and there are no dead letters.
        partition = new SharePartition("g", place, 0, locks, deliveries, LOCK_MS, timers, new Clock(), store, null,
            key -> { }, new ShareGroupConfigProvider(configs), null, () -> false, null);
        partition.maybeInitialize().get();
    }

    static String acquire(String[] words) {
        List<ByteBuffer> parts = new ArrayList<>();
        int size = 0;
        for (int at = 6; at < words.length; at++) {
            String[] one = words[at].split(":");
            long base = Long.parseLong(one[0]), last = Long.parseLong(one[1]);
            SimpleRecord[] records = new SimpleRecord[(int) (last - base + 1)];
            Arrays.fill(records, new SimpleRecord("v".getBytes()));
            ByteBuffer buffer = MemoryRecords.withRecords(base, Compression.NONE, records).buffer();
            parts.add(buffer);
            size += buffer.remaining();
        }
        ByteBuffer all = ByteBuffer.allocate(size);
        parts.forEach(all::put);
        all.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 1000, 0, MemoryRecords.readableRecords(all),
            Optional.empty(), OptionalLong.empty(), Optional.empty(), OptionalInt.empty(), false);
        ShareAcquiredRecords found = partition.acquire(words[1],
            words[2].equals("1") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED,
            Integer.parseInt(words[3]), Integer.parseInt(words[4]), Long.parseLong(words[5]), data,
            FetchIsolation.HIGH_WATERMARK);
        StringBuilder told = new StringBuilder();
        found.acquiredRecords().forEach(one -> told.append(one.firstOffset()).append(':').append(one.lastOffset())
            .append(':').append(one.deliveryCount()).append(' '));
        return told.toString().trim();
    }

    static String acknowledge(String[] words) {
        List<Byte> types = new ArrayList<>();
        for (String one : words[4].split(",")) types.add(Byte.parseByte(one));
        CompletableFuture<Void> future = partition.acknowledge(words[1],
            List.of(new ShareAcknowledgementBatch(Long.parseLong(words[2]), Long.parseLong(words[3]), types)));
        return outcome(future);
    }

    static String outcome(CompletableFuture<Void> future) {
        if (!future.isDone()) return "waits";
        try {
            future.get();
            return "done";
        } catch (Exception error) {
            return Errors.forException(error.getCause()).name();
        }
    }

    static String state() {
        StringBuilder told = new StringBuilder();
        Map<Long, InFlightBatch> cached = partition.cachedState();
        long start = partition.startOffset();
        long fresh = cached.isEmpty() || start > cached.get(lastKey(cached)).lastOffset() ? partition.endOffset()
            : partition.endOffset() + 1;
        told.append(start).append(' ').append(fresh).append(' ').append(partition.nextFetchOffset()).append(' ')
            .append(partition.deliveryCompleteCount());
        for (InFlightBatch batch : cached.values()) {
            for (long offset = Math.max(batch.firstOffset(), start); offset <= batch.lastOffset(); offset++) {
                if (batch.offsetState() == null) {
                    one(told, offset, batch.batchState().id(), batch.batchDeliveryCount(), batch.batchMemberId());
                } else {
                    InFlightState found = batch.offsetState().get(offset);
                    one(told, offset, found.state().id(), found.deliveryCount(), found.memberId());
                }
            }
        }
        return told.toString();
    }

    static Long lastKey(Map<Long, InFlightBatch> cached) {
        Long last = null;
        for (Long key : cached.keySet()) last = key;
        return last;
    }

    static void one(StringBuilder told, long offset, int state, int count, String member) {
        told.append(' ').append(offset).append(':').append(state).append(':').append(count).append(':').append(member);
    }

    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        Configs configs = (Configs) unsafe.allocateInstance(Configs.class);
        PrintStream out = new PrintStream(System.out, true);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            String told = "";
            try {
                switch (words[0]) {
                    case "load" -> load(words, configs);
                    case "acquire" -> told = acquire(words);
                    case "acknowledge" -> told = acknowledge(words);
                    case "release" -> told = outcome(partition.releaseAcquiredRecords(words[1]));
                    case "answer" -> { if (!store.waiting.isEmpty()) store.answer(words[1].equals("1")); }
                    case "answer_all" -> { while (!store.waiting.isEmpty()) store.answer(true); }
                    case "wait" -> timers.advanceClock(Long.parseLong(words[1]));
                    case "state" -> told = state();
                    default -> throw new IllegalArgumentException(line);
                }
            } catch (Exception error) {
                told = "failed " + error;
            }
            out.println("> " + told);
        }
    }
}
