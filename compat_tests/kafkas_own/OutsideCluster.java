import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.AbstractMap;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.IntegrationTestUtils;
import sun.misc.Unsafe;

/**
 * A cluster as Kafka's tests look at it, that is only addresses: of brokers 0, 1, ... What a test asks of a broker's
 * metadata is asked of the broker itself. All else throws UnsupportedOperationException ("in this JVM").
 */
class OutsideCluster {
    private final ClusterConfig wanted;
    private final String bootstrap;
    private final String controllers;
    private final int[] ports;
    private final Consumer<String> wishes;
    private final SynchronousQueue<String> granted = new SynchronousQueue<>();
    private final Set<Integer> stopped = new HashSet<>();
    private final Map<Integer, KafkaBroker> brokers = new LinkedHashMap<>();

    /** Addresses of controllers may be "". */
    OutsideCluster(ClusterConfig wanted, String bootstrap, String controllers, Consumer<String> wishes) {
        this.wanted = wanted;
        this.bootstrap = bootstrap;
        this.controllers = controllers;
        this.wishes = wishes;
        String[] addresses = bootstrap.split(",");
        ports = new int[addresses.length];
        for (int id = 0; id < ports.length; id++) {
            ports[id] = Integer.parseInt(addresses[id].substring(addresses[id].lastIndexOf(':') + 1));
            brokers.put(id, broker(id));
        }
    }

    /** What the test has asked for is done. */
    void grant() throws InterruptedException {
        granted.put("done");
    }

    static <T> T made(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, given) -> {
            switch (method.getName()) {
                case "hashCode":
                    return System.identityHashCode(self);
                case "equals":
                    return self == given[0];
                case "toString":
                    return type.getSimpleName();
                default:
                    return handler.invoke(self, method, given);
            }
        }));
    }

    static Object otherwise(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.isDefault()) {
            return InvocationHandler.invokeDefault(self, method, arguments);
        }
        throw new UnsupportedOperationException("in this JVM: " + method);
    }

    private Object wish(String what, int id) throws InterruptedException {
        wishes.accept(what + " " + id);
        granted.take();
        return null;
    }

    private Object stop(int id) throws InterruptedException {
        return stopped.add(id) ? wish("stop", id) : null;
    }

    private Object start(int id) throws InterruptedException {
        return stopped.remove(id) ? wish("start", id) : null;
    }

    private Object all(boolean run) throws InterruptedException {
        for (int id : brokers.keySet()) {
            if (run) {
                start(id);
            } else {
                stop(id);
            }
        }
        return null;
    }

    ClusterInstance instance() {
        return made(ClusterInstance.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "type":
                    return Type.KRAFT;
                case "bootstrapServers":
                    return bootstrap;
                case "bootstrapControllers":
                    return controllers.isEmpty() ? otherwise(self, method, arguments) : controllers;
                case "controllerBoundPorts":
                    return controllers.isEmpty()
                        ? otherwise(self, method, arguments)
                        : List.of(Integer.parseInt(controllers.substring(controllers.lastIndexOf(':') + 1)));
                case "config":
                    return wanted;
                case "brokers":
                    return brokers;
                case "controllers":
                    return controllers();
                case "controllerIds":
                    return Set.of(CONTROLLER_ID);
                case "brokerBoundPorts":
                    return Arrays.stream(ports).boxed().toList();
                case "clientListener":
                    return new ListenerName("PLAINTEXT");
                case "controllerListenerName":
                    return new ListenerName("CONTROLLER");
                case "clusterId":
                    return asked(null).clusterId();
                case "supportedGroupProtocols":
                    return supportedGroupProtocols();
                case "firstFatalException":
                case "firstNonFatalException":
                    return Optional.empty();
                case "start":
                    return all(true);
                case "stop":
                    return all(false);
                case "started":
                    return true;
                case "stopped":
                    return stopped.size() == ports.length;
                case "shutdownBroker":
                    return stop((int) arguments[0]);
                case "startBroker":
                    return start((int) arguments[0]);
                case "waitForReadyBrokers":
                case "ensureConsistentMetadata":
                    return null;
                case "waitTopicDeletion":
                    await(() -> brokers.values().stream().allMatch(
                        one -> one.metadataCache().numPartitions((String) arguments[0]).isEmpty()));
                    return null;
                default:
                    return otherwise(self, method, arguments);
            }
        });
    }

    private Set<GroupProtocol> supportedGroupProtocols() {
        String protocols = wanted.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "consumer");
        return protocols.contains("consumer")
            ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER)
            : Set.of(GroupProtocol.CLASSIC);
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not so after 60 s");
            }
            Thread.sleep(50);
        }
    }

    // -- a broker

    private KafkaBroker broker(int id) {
        MetadataCache cache = metadata(id);
        return made(KafkaBroker.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "metadataCache":
                    return cache;
                case "config":
                    return config(id);
                case "clusterId":
                    return asked(id).clusterId();
                case "socketServer":
                    return listening(ports[id]);
                case "boundPort":
                    return ports[id];
                case "groupCoordinator":
                    return made(GroupCoordinator.class, (of, called, given) ->
                        called.getName().equals("groupMetadataTopicConfigs")
                            ? new Properties()
                            : otherwise(of, called, given));
                case "isShutdown":
                    return stopped.contains(id);
                case "brokerState":
                    return stopped.contains(id) ? BrokerState.NOT_RUNNING : BrokerState.RUNNING;
                case "shutdown":
                    return stop(id);
                case "startup":
                    return start(id);
                case "awaitShutdown": // it was already waited for
                    return null;
                default:
                    return otherwise(self, method, arguments);
            }
        });
    }

    private KafkaConfig config(int id) {
        Map<String, String> properties = new HashMap<>(Map.of(
            "process.roles", "broker",
            "controller.listener.names", "CONTROLLER",
            "controller.quorum.bootstrap.servers", "127.0.0.1:1",
            "listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "offsets.topic.num.partitions", "" + STATE_PARTITIONS,
            "transaction.state.log.num.partitions", "" + STATE_PARTITIONS,
            "offsets.topic.replication.factor", "" + Math.min(3, ports.length),
            "transaction.state.log.replication.factor", "" + Math.min(3, ports.length)));
        properties.putAll(wanted.serverProperties());
        properties.put("node.id", "" + id);
        properties.put("listeners", "PLAINTEXT://127.0.0.1:" + ports[id]);
        directories(id).ifPresent(text -> properties.put("log.dirs", text));
        return new KafkaConfig(properties, false);
    }

    private static final int STATE_PARTITIONS = 3;

    /** Where the broker has its logs, as it says itself. Empty while it does not run. */
    private Optional<String> directories(int id) {
        if (stopped.contains(id)) {
            return Optional.empty();
        }
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, "" + id);
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            Config told = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            return Optional.of(told.get("log.dirs").value());
        } catch (ExecutionException | InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private MetadataResponse asked(Integer id, String... topics) {
        MetadataRequest.Builder builder = topics.length == 0
            ? MetadataRequest.Builder.allTopics()
            : new MetadataRequest.Builder(List.of(topics), false);
        try {
            return IntegrationTestUtils.connectAndReceive(
                builder.build(ApiKeys.METADATA.latestVersion()), ports[id == null ? 0 : id]);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private Optional<MetadataResponseTopic> topic(int id, String name) {
        return asked(id, name).data().topics().stream().filter(one -> one.errorCode() == 0).findAny();
    }

    private MetadataCache metadata(int id) {
        return made(MetadataCache.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "getAliveBrokerNodes":
                case "getBrokerNodes":
                    return List.copyOf(asked(id).brokers());
                case "hasAliveBroker":
                    return asked(id).brokers().stream().map(Node::id).anyMatch(arguments[0]::equals);
                case "getAllTopics":
                    return names(id).keySet();
                case "topicNamesToIds":
                    return names(id);
                case "getTopicId":
                    return names(id).getOrDefault(arguments[0], Uuid.ZERO_UUID);
                case "numPartitions":
                    return topic(id, (String) arguments[0]).map(one -> one.partitions().size());
                case "contains":
                    return arguments[0] instanceof String && topic(id, (String) arguments[0]).isPresent();
                case "getLeaderAndIsr":
                    return topic(id, (String) arguments[0]).flatMap(one -> one.partitions().stream()
                        .filter(partition -> partition.partitionIndex() == (int) arguments[1])
                        .findAny()
                        .map(OutsideCluster::leaderAndIsr));
                default:
                    return otherwise(self, method, arguments);
            }
        });
    }

    private Map<String, Uuid> names(int id) {
        Map<String, Uuid> found = new HashMap<>();
        asked(id).data().topics().forEach(one -> found.put(one.name(), one.topicId()));
        return found;
    }

    private static LeaderAndIsr leaderAndIsr(MetadataResponsePartition partition) {
        return new LeaderAndIsr(partition.leaderId(), partition.isrNodes());
    }

    // -- classes of Kafka that are no interfaces: made without their constructors

    private static final int CONTROLLER_ID = 3000;

    /** The one controller is there for who asks for it by its id; nobody is to wait for its log. */
    private Map<Integer, ControllerServer> controllers() throws Exception {
        Answering answering = unmade(Answering.class);
        answering.cluster = this;
        return new AbstractMap<>() {
            @Override
            public Set<Map.Entry<Integer, ControllerServer>> entrySet() {
                return Set.of();
            }

            @Override
            public Set<Integer> keySet() {
                return Set.of(CONTROLLER_ID);
            }

            @Override
            public ControllerServer get(Object id) {
                return answering;
            }
        };
    }

    private static SocketServer listening(int port) throws Exception {
        Listening listening = unmade(Listening.class);
        listening.port = port;
        return listening;
    }

    private static <T> T unmade(Class<T> type) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return type.cast(((Unsafe) field.get(null)).allocateInstance(type));
    }

    private static class Listening extends SocketServer {
        private int port;

        private Listening() {
            super(null, null, null, null, null, null, null);
        }

        @Override
        public int boundPort(ListenerName name) {
            return port;
        }
    }

    private static class Answering extends ControllerServer {
        private OutsideCluster cluster;

        private Answering() {
            super(null, null, null);
        }

        @Override
        public Controller controller() {
            return made(Controller.class, (self, method, arguments) -> method.getName().equals("findAllTopicIds")
                ? CompletableFuture.completedFuture(cluster.names(0))
                : otherwise(self, method, arguments));
        }
    }
}
