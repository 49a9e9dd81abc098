import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.junit.ClusterTestExtensions;
import org.apache.kafka.common.test.junit.RaftClusterInvocationContext;
import org.apache.kafka.server.common.MetadataVersion;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Runs tests of Kafka that want a cluster in their own JVM against brokers outside of it. Argument: how many seconds
 * a test may take. Requests, with tabs between their parts:
 *
 * <pre>
 * list CLASS                          a line for each test: its name, its number among those of this name,
 *                                     what its cluster is to be as NAME=VALUE; a name that begins with a colon is no
 *                                     property of Kafka
 * run CLASS NAME NUMBER BROKERS CONTROLLERS
 *                                     runs a test with these addresses: no line when it has passed, or what it
 *                                     wants of the brokers: `stop ID` or `start ID`
 * done                                the brokers did it; answers as `run` does
 * </pre>
 */
public class KafkasOwnTests {
    private static final String PASSED = "passed";
    private static final String FAILED = "failed ";

    private final long seconds;
    /** What the running test says: its wishes, then its outcome. */
    private LinkedBlockingQueue<String> said;
    private OutsideCluster cluster;
    private Thread running;
    private Class<?> tests;

    private KafkasOwnTests(long seconds) {
        this.seconds = seconds;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever else prints
        KafkasOwnTests suite = new KafkasOwnTests(Long.parseLong(arguments[0]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                List<String> lines = suite.answer(line.split("\t"));
                answers.println("ok " + lines.size());
                lines.forEach(answers::println);
            } catch (Throwable failure) {
                answers.println("error " + String.valueOf(failure.getMessage()).replaceAll("\\s+", " "));
            }
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // also when a test has left a thread, or a hook that waits
    }

    private List<String> answer(String[] request) throws Exception {
        switch (request[0]) {
            case "list":
                return list(Class.forName(request[1], false, getClass().getClassLoader()));
            case "run":
                tests = Class.forName(request[1]);
                Method method = named(request[2]);
                ClusterConfig wanted = configurations(tests, method).get(Integer.parseInt(request[3]) - 1);
                said = new LinkedBlockingQueue<>();
                cluster = new OutsideCluster(wanted, request[4], request.length > 5 ? request[5] : "", said::add);
                LinkedBlockingQueue<String> mine = said;
                OutsideCluster given = cluster;
                running = new Thread(() -> mine.add(run(method, given)));
                running.start();
                return next();
            case "done":
                cluster.grant();
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

    // -- which tests there are

    private static List<String> list(Class<?> tests) throws Exception {
        List<String> lines = new ArrayList<>();
        if (Modifier.isAbstract(tests.getModifiers()) || tests.isAnnotationPresent(Disabled.class)) {
            return lines;
        }
        for (Method method : methods(tests)) {
            if (method.isAnnotationPresent(Disabled.class)) {
                continue;
            }
            int number = 0;
            for (ClusterConfig wanted : configurations(tests, method)) {
                StringBuilder line = new StringBuilder(method.getName()).append('\t').append(++number);
                described(wanted).forEach((name, value) -> line.append('\t').append(name).append('=').append(value));
                lines.add(line.toString());
            }
        }
        lines.sort(Comparator.naturalOrder());
        return lines;
    }

    private static TreeMap<String, String> described(ClusterConfig wanted) {
        TreeMap<String, String> described = new TreeMap<>(wanted.serverProperties());
        described.put(":brokers", "" + wanted.numBrokers());
        described.put(":controllers", "" + wanted.numControllers());
        described.put(":disks", "" + wanted.numDisksPerBroker());
        described.put(":protocol", "" + wanted.brokerSecurityProtocol());
        if (wanted.metadataVersion() != MetadataVersion.latestTesting()) {
            described.put(":feature.metadata.version", "" + wanted.metadataVersion().featureLevel());
        }
        wanted.features().forEach((feature, level) -> described.put(":feature." + feature.featureName(), "" + level));
        wanted.perServerOverrideProperties().forEach((id, some) ->
            some.forEach((name, value) -> described.put(":of." + id + "." + name, value)));
        return described;
    }

    /** Each cluster with which the test is to run once, as Kafka's own extension of JUnit finds them. */
    private static List<ClusterConfig> configurations(Class<?> tests, Method method) throws Exception {
        boolean isTest = false;
        for (Annotation annotation : method.getDeclaredAnnotations()) {
            isTest |= annotation.annotationType().getSimpleName().startsWith("ClusterTe");
        }
        if (!isTest) {
            return List.of();
        }
        ExtensionContext context = OutsideCluster.made(ExtensionContext.class, (self, called, arguments) -> {
            switch (called.getName()) {
                case "getRequiredTestMethod":
                    return method;
                case "getRequiredTestClass":
                    return tests;
                case "getTestInstance":
                    return Optional.empty();
                default:
                    return OutsideCluster.otherwise(self, called, arguments);
            }
        });
        Field field = RaftClusterInvocationContext.class.getDeclaredField("clusterConfig");
        field.setAccessible(true);
        // Controllers in the same process or not: here that is the same.
        IdentityHashMap<ClusterConfig, Boolean> seen = new IdentityHashMap<>();
        List<ClusterConfig> found = new ArrayList<>();
        for (Object one : new ClusterTestExtensions().provideTestTemplateInvocationContexts(context).toList()) {
            ClusterConfig wanted = (ClusterConfig) field.get(one);
            if (seen.put(wanted, true) == null) {
                found.add(wanted);
            }
        }
        return found;
    }

    /** Those of the class and of all that it extends; they need not be public. */
    private static List<Method> methods(Class<?> tests) {
        List<Method> found = new ArrayList<>();
        for (Class<?> one = tests; one != Object.class; one = one.getSuperclass()) {
            found.addAll(List.of(one.getDeclaredMethods()));
        }
        return found;
    }

    private Method named(String name) {
        for (Method method : methods(tests)) {
            for (Annotation annotation : method.getDeclaredAnnotations()) {
                if (method.getName().equals(name)
                        && annotation.annotationType().getSimpleName().startsWith("ClusterTe")) {
                    return method;
                }
            }
        }
        throw new IllegalArgumentException(tests + " has no " + name);
    }

    // -- one test between its set-up and its end, as JUnit does it

    /** The outcome of the test. */
    private String run(Method method, OutsideCluster given) {
        try {
            ClusterInstance instance = given.instance();
            invokeAll(BeforeAll.class, null, instance, method);
            Constructor<?> constructor = tests.getDeclaredConstructors()[0];
            constructor.setAccessible(true);
            Object test = constructor.newInstance(arguments(constructor.getParameterTypes(), instance, method));
            try {
                invokeAll(BeforeEach.class, test, instance, method);
                invoke(method, test, instance, method);
            } finally {
                invokeAll(AfterEach.class, test, instance, method);
                invokeAll(AfterAll.class, null, instance, method);
            }
            return PASSED;
        } catch (InvocationTargetException wrapped) {
            return FAILED + text(wrapped.getCause());
        } catch (Throwable failure) {
            return FAILED + text(failure);
        }
    }

    private void invokeAll(
            Class<? extends Annotation> mark, Object test, ClusterInstance instance, Method method) throws Exception {
        List<Class<?>> classes = new ArrayList<>();
        for (Class<?> one = tests; one != Object.class; one = one.getSuperclass()) {
            classes.add(mark == BeforeEach.class || mark == BeforeAll.class ? 0 : classes.size(), one);
        }
        for (Class<?> one : classes) {
            for (Method hook : one.getDeclaredMethods()) {
                if (hook.isAnnotationPresent(mark)) {
                    invoke(hook, test, instance, method);
                }
            }
        }
    }

    private static void invoke(Method called, Object test, ClusterInstance instance, Method method)
            throws Exception {
        called.setAccessible(true);
        called.invoke(test, arguments(called.getParameterTypes(), instance, method));
    }

    private static Object[] arguments(Class<?>[] types, ClusterInstance instance, Method method) {
        Object[] values = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            if (types[i] == ClusterInstance.class) {
                values[i] = instance;
            } else if (types[i] == TestInfo.class) {
                values[i] = OutsideCluster.made(TestInfo.class, (self, called, given) ->
                    called.getName().equals("getDisplayName") ? method.getName() : Optional.empty());
            } else {
                throw new UnsupportedOperationException("a parameter: " + types[i]);
            }
        }
        return values;
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
            String outer = element.getClassName().split("\\$")[0];
            for (Class<?> one = tests; one != Object.class; one = one.getSuperclass()) {
                if (outer.equals(one.getName())) {
                    text.append(text.length() == 0 ? " at " : " < ").append(element.getLineNumber());
                    break;
                }
            }
        }
        return text.toString();
    }
}
