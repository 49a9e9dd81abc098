import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

import kafka.server.KafkaBroker;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.ClusterConfigProperty;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.common.test.api.ClusterTests;
import org.apache.kafka.metadata.MetadataCache;

/**
 * Runs tests of Kafka that want a cluster in their own JVM against a broker outside of it. Arguments: the class of
 * the tests, how many seconds a test may take. Requests, with tabs between their parts:
 *
 * <pre>
 * list                 a line for each test: its name, how many brokers it wants, their settings as NAME=VALUE
 * run NAME BOOTSTRAP   runs a test: no line when it has passed, or what it wants of the broker, `stop` or `start`
 * done                 the broker did it; answers as `run` does
 * </pre>
 */
public class KafkasOwnTests {
    private static final String PASSED = "passed";
    private static final String FAILED = "failed ";

    private final Class<?> tests;
    private final long seconds;
    /** What the running test says: its wishes, then its outcome. */
    private final LinkedBlockingQueue<String> said = new LinkedBlockingQueue<>();
    private final SynchronousQueue<String> granted = new SynchronousQueue<>();
    private Thread running;

    private KafkasOwnTests(Class<?> tests, long seconds) {
        this.tests = tests;
        this.seconds = seconds;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever else prints
        KafkasOwnTests suite =
            new KafkasOwnTests(Class.forName(arguments[0]), Long.parseLong(arguments[1]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                List<String> lines = suite.answer(line.split("\t"));
                answers.println("ok " + lines.size());
                lines.forEach(answers::println);
            } catch (Throwable failure) {
                answers.println("error " + failure.getMessage());
            }
            answers.flush();
        }
        System.exit(0); // also when a test has left a thread
    }

    private List<String> answer(String[] request) throws Exception {
        switch (request[0]) {
            case "list":
                return list();
            case "run":
                said.clear();
                running = new Thread(() -> said.add(run(request[1], request[2])));
                running.start();
                return next();
            case "done":
                granted.put("done");
                return next();
            default:
                throw new IllegalArgumentException(request[0]);
        }
    }

    private List<String> next() throws Exception {
        String text = said.poll(seconds, TimeUnit.SECONDS);
        if (text == null) {
            StackTraceElement[] stack = running.getStackTrace();
            running.interrupt();
            throw new AssertionError("not done after " + seconds + " s" + place(stack));
        }
        if (text.startsWith(FAILED)) {
            throw new AssertionError(text.substring(FAILED.length()));
        }
        return text.equals(PASSED) ? List.of() : List.of(text);
    }

    private List<String> list() {
        List<String> lines = new ArrayList<>();
        ClusterTestDefaults defaults = tests.getAnnotation(ClusterTestDefaults.class);
        for (Method method : tests.getDeclaredMethods()) {
            for (ClusterTest one : variants(method)) {
                TreeMap<String, String> settings = new TreeMap<>();
                for (ClusterConfigProperty[] some :
                        new ClusterConfigProperty[][] {defaults.serverProperties(), one.serverProperties()}) {
                    for (ClusterConfigProperty setting : some) {
                        settings.put(setting.key(), setting.value());
                    }
                }
                StringBuilder line = new StringBuilder(method.getName());
                line.append('\t').append(one.brokers() == 0 ? defaults.brokers() : one.brokers());
                settings.forEach((name, value) -> line.append('\t').append(name).append('=').append(value));
                lines.add(line.toString());
            }
        }
        return lines;
    }

    private static ClusterTest[] variants(Method method) {
        ClusterTests several = method.getAnnotation(ClusterTests.class);
        return several == null ? method.getAnnotationsByType(ClusterTest.class) : several.value();
    }

    /** One test between its set-up and its end, as JUnit does it; its outcome. */
    private String run(String name, String bootstrap) {
        try {
            Object test = tests.getConstructor(ClusterInstance.class).newInstance(cluster(bootstrap));
            tests.getMethod("setup").invoke(test);
            try {
                tests.getMethod(name).invoke(test);
            } finally {
                tests.getMethod("tearDown").invoke(test);
            }
            return PASSED;
        } catch (InvocationTargetException wrapped) {
            return FAILED + text(wrapped.getCause());
        } catch (Throwable failure) {
            return FAILED + text(failure);
        }
    }

    private String text(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            text.append(text.length() == 0 ? "" : " from ").append(cause).append(place(cause.getStackTrace()));
        }
        return text.toString().replaceAll("\\s+", " ");
    }

    /** Where in the tests that is. */
    private String place(StackTraceElement[] stack) {
        StringBuilder text = new StringBuilder();
        for (StackTraceElement element : stack) {
            if (element.getClassName().startsWith(tests.getName())) {
                text.append(text.length() == 0 ? " at " : " < ").append(element.getLineNumber());
            }
        }
        return text.toString();
    }

    // -- the cluster, as far as the tests look at it

    private static <T> T made(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private ClusterInstance cluster(String bootstrap) {
        return made(ClusterInstance.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "bootstrapServers":
                    return bootstrap;
                case "config":
                    return ClusterConfig.defaultBuilder().build();
                case "brokers":
                    return Map.of(0, broker());
                case "shutdownBroker":
                    return wish("stop");
                case "startBroker":
                    return wish("start");
                case "waitForReadyBrokers":
                    return null;
                default:
                    return otherwise(self, method, arguments);
            }
        });
    }

    private KafkaBroker broker() {
        MetadataCache cache = made(MetadataCache.class, (self, method, arguments) -> {
            return method.getName().equals("getAliveBrokerNodes")
                ? List.of(new Node(0, "localhost", 0))
                : otherwise(self, method, arguments);
        });
        return made(KafkaBroker.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "metadataCache":
                    return cache;
                case "awaitShutdown": // it was already waited for
                    return null;
                default:
                    return otherwise(self, method, arguments);
            }
        });
    }

    private static Object otherwise(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.isDefault()) {
            return InvocationHandler.invokeDefault(self, method, arguments);
        }
        throw new UnsupportedOperationException("a broker in this JVM: " + method);
    }

    private Object wish(String what) throws InterruptedException {
        said.add(what);
        granted.take();
        return null;
    }
}
