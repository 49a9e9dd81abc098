import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.Permission;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.login.Configuration;

/**
 * Programs with a `main`, unmodified, one after the other in one virtual machine: to start one for each takes
 * longer than all that most of them do.
 *
 * `tool_server.py` has the other end. A request on standard input is a count and so many texts: a folder of
 * classes or nothing, the class, its arguments; then the bytes of the program's standard input. The answer is
 * the exit status and the bytes of both outputs. When the program has left nothing behind, a byte says that
 * the next one may come; else the virtual machine ends. Numbers are of four bytes, before bytes comes how many.
 *
 * A program runs in the thread `main`, as it would alone: its name is seen in what the program logs.
 */
public final class ToolServer {
    /** So long a program that has ended may take to close what it has opened. */
    private static final long UNWINDING_MS = 2_000;
    /** So long the threads of a program that has ended may go on. */
    private static final long REST_MS = 300;
    private static final Output OUT = new Output();
    private static final Output ERRORS = new Output();
    private static final Input IN = new Input();
    private static final PrintStream OUT_STREAM = stream(OUT, "stdout.encoding");
    private static final PrintStream ERROR_STREAM = stream(ERRORS, "stderr.encoding");
    private static final ThreadLocal<Run> ENDED_BY_THIS_THREAD = new ThreadLocal<>();
    private static final SynchronousQueue<Run> NEXT = new SynchronousQueue<>();
    private static volatile Run current;
    private static Properties properties;
    private static Map<Thread, Thread> hooks;
    private static final Set<Thread> KEPT_HOOKS = new HashSet<>();

    /** Thrown where a program would end its process. */
    private static final class Ended extends Error {
        Ended() {
            super("the program has ended", null, false, false);
        }
    }

    /** What a program writes. A thread that has ended it writes no more: a process would have gone. */
    private static final class Output extends OutputStream {
        private final ByteArrayOutputStream kept = new ByteArrayOutputStream();
        private boolean isClosed;

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            if (ENDED_BY_THIS_THREAD.get() == null && !isClosed)
                kept.write(bytes, from, length);
        }

        @Override
        public synchronized void close() {
            isClosed = true;
        }

        synchronized byte[] take() {
            byte[] taken = kept.toByteArray();
            kept.reset();
            isClosed = false;
            return taken;
        }
    }

    /** The standard input of the program that runs. */
    private static final class Input extends InputStream {
        private volatile InputStream text = InputStream.nullInputStream();

        @Override
        public int read() throws IOException {
            return text.read();
        }

        @Override
        public int read(byte[] into, int from, int length) throws IOException {
            return text.read(into, from, length);
        }

        @Override
        public int available() throws IOException {
            return text.available();
        }
    }

    /** One program from its start to its end. */
    private static final class Run {
        final String folder;
        final String mainClass;
        final String[] arguments;
        /** Where nothing asks for another one. */
        volatile int statusOfReturn;
        final CountDownLatch returned = new CountDownLatch(1);
        private final CountDownLatch done = new CountDownLatch(1);
        private Integer status;

        Run(List<String> words) {
            folder = words.get(0);
            mainClass = words.get(1);
            arguments = words.subList(2, words.size()).toArray(new String[0]);
        }

        synchronized void end(int with) {
            if (status == null)
                status = with;
            done.countDown();
        }

        synchronized boolean hasEnded() {
            return status != null;
        }

        synchronized int status() {
            return status;
        }
    }

    private ToolServer() { }

    private static PrintStream stream(Output into, String encoding) {
        String named = System.getProperty("sun." + encoding, System.getProperty(encoding));
        Charset charset = named == null ? Charset.defaultCharset() : Charset.forName(named);
        return new PrintStream(into, true, charset) {
            @Override
            public void close() {
                ((Output) out).close(); // Itself it stays open: the next program writes here, too.
            }
        };
    }

    public static void main(String[] ignored) throws Throwable {
        DataInputStream requests = new DataInputStream(new FileInputStream(FileDescriptor.in));
        DataOutputStream answers = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        // Before any class of Kafka is loaded: logging and Scala keep the streams that they find first.
        takeStreams();
        catchExits();
        hooks = shutdownHooks();
        beginLogging();
        KEPT_HOOKS.addAll(hooks.keySet());
        properties = (Properties) System.getProperties().clone();
        OUT.take();
        ERRORS.take();
        Thread server = new Thread(() -> serve(requests, answers), "tool-server");
        server.setDaemon(true);
        server.start();
        while (true) {
            Run run = NEXT.take();
            ENDED_BY_THIS_THREAD.remove();
            try {
                MethodHandle program = programOf(run);
                program.invoke(run.arguments);
            } catch (ClassNotFoundException missing) {
                ERROR_STREAM.println("Error: Could not find or load main class " + run.mainClass);
                ERROR_STREAM.println("Caused by: " + missing);
                run.end(1);
            } catch (Throwable thrown) {
                tellUncaught(run, thrown);
            }
            run.returned.countDown();
            run.done.countDown();
        }
    }

    private static void tellUncaught(Run run, Throwable thrown) {
        if (ENDED_BY_THIS_THREAD.get() != null)
            return;
        ERROR_STREAM.print("Exception in thread \"main\" ");
        thrown.printStackTrace(ERROR_STREAM);
        run.statusOfReturn = 1;
    }

    private static MethodHandle programOf(Run run) throws ReflectiveOperationException, MalformedURLException {
        ClassLoader loader = ToolServer.class.getClassLoader();
        if (!run.folder.isEmpty())
            loader = new URLClassLoader(new URL[] {Path.of(run.folder).toUri().toURL()}, loader);
        Thread.currentThread().setContextClassLoader(loader);
        Method main = Class.forName(run.mainClass, false, loader).getDeclaredMethod("main", String[].class);
        main.setAccessible(true);
        return MethodHandles.lookup().unreflect(main).asFixedArity();
    }

    private static void takeStreams() {
        System.setIn(IN);
        System.setOut(OUT_STREAM);
        System.setErr(ERROR_STREAM);
    }

    // -- the end of a program

    private static void end(int status) {
        Run run = current;
        run.end(status);
        ENDED_BY_THIS_THREAD.set(run);
        throw new Ended();
    }

    /** Kafka's own way, which knows of programs that are called; the oldest Kafka has none. */
    private static void catchExits() throws ReflectiveOperationException {
        Class<?> exit = exitClass();
        if (exit == null) {
            System.setSecurityManager(new Exits());
            return;
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object ending = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure},
            (proxy, method, values) -> {
                end((Integer) values[0]);
                return null;
            });
        for (String name : List.of("setExitProcedure", "setHaltProcedure"))
            exit.getMethod(name, procedure).invoke(null, ending);
    }

    /** The class of Kafka that ends the process, which 4.4 has in another package; null in the oldest Kafka. */
    private static Class<?> exitClass() {
        for (String name : List.of("org.apache.kafka.common.utils.internals.Exit", "org.apache.kafka.common.utils.Exit")) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        return null;
    }

    private static final class Exits extends SecurityManager {
        @Override
        public void checkExit(int status) {
            if (current != null)
                end(status);
        }

        @Override
        public void checkPermission(Permission permission) { }

        @Override
        public void checkPermission(Permission permission, Object context) { }
    }

    // -- requests and answers

    private static void serve(DataInputStream requests, DataOutputStream answers) {
        try {
            while (true) {
                int count = requests.readInt();
                List<String> words = new ArrayList<>();
                for (int number = 0; number < count; number++)
                    words.add(new String(bytes(requests), StandardCharsets.UTF_8));
                IN.text = new ByteArrayInputStream(bytes(requests));
                Set<Thread> before = threads();
                Run run = new Run(words);
                current = run;
                NEXT.put(run);
                awaitEnd(run, before);
                answers.writeInt(run.status());
                for (Output one : List.of(OUT, ERRORS)) {
                    byte[] written = withoutOurFrame(one.take());
                    answers.writeInt(written.length);
                    answers.write(written);
                }
                answers.flush();
                if (!isClean(run, before))
                    leave(1);
                answers.writeByte(1);
            }
        } catch (EOFException finished) {
            leave(0);
        } catch (Throwable problem) {
            new PrintStream(new FileOutputStream(FileDescriptor.err), true).println(problem);
            leave(1);
        }
    }

    private static void leave(int status) {
        current = null;
        Runtime.getRuntime().halt(status);
    }

    private static byte[] bytes(DataInputStream from) throws IOException {
        return from.readNBytes(from.readInt());
    }

    private static final Pattern IN_COMMON = Pattern.compile("\t\\.\\.\\. (\\d+) more");

    /** Stacks that a program has printed lose our frame, which they would not have alone. */
    private static byte[] withoutOurFrame(byte[] text) {
        StringBuilder kept = new StringBuilder();
        // Whether the stack that is read, and the one that it is the cause of, begin with our frame.
        boolean isOurs = false, isCauseOfOurs = false;
        for (String line : new String(text, StandardCharsets.ISO_8859_1).split("(?<=\n)")) {
            Matcher inCommon = IN_COMMON.matcher(line.stripTrailing());
            if (line.startsWith("\tat ToolServer.")) {
                isOurs = true;
                continue;
            } else if (inCommon.matches() && isCauseOfOurs) {
                isOurs = true;
                int others = Integer.parseInt(inCommon.group(1)) - 1;
                line = others > 0 ? "\t... " + others + " more\n" : "";
            } else if (!line.startsWith("\tat ")) {
                isCauseOfOurs = isOurs && line.startsWith("Caused by: ");
                isOurs = false;
            }
            kept.append(line);
        }
        return kept.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    /** Returns when a process would be gone: after an exit, or when no thread works any more; then its hooks. */
    private static void awaitEnd(Run run, Set<Thread> before) throws InterruptedException {
        run.done.await();
        while (!run.hasEnded() && !workers(before).isEmpty())
            Thread.sleep(2);
        run.end(run.statusOfReturn);
        run.returned.await(UNWINDING_MS, TimeUnit.MILLISECONDS);
        List<Thread> last = new ArrayList<>(hooks.keySet());
        last.removeAll(KEPT_HOOKS);
        hooks.keySet().removeAll(last);
        last.forEach(Thread::start);
        for (Thread one : last)
            one.join();
    }

    /** Whether nothing of the program goes on; sets back what it may have set for all. */
    private static boolean isClean(Run run, Set<Thread> before) throws Exception {
        if (run.returned.getCount() > 0)
            return false;
        for (Thread one : left(before))
            closeClientOf(one);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(REST_MS);
        while (!left(before).isEmpty()) {
            if (System.nanoTime() > deadline) {
                String names = left(before).stream().map(Thread::getName).reduce("", (a, b) -> a + " " + b);
                new PrintStream(new FileOutputStream(FileDescriptor.err), true).println("left:" + names);
                return false;
            }
            Thread.sleep(2);
        }
        System.setProperties((Properties) properties.clone());
        takeStreams();
        Configuration.setConfiguration(null);
        for (String counter : COUNTERS)
            setBack(counter);
        letLoggingWarnAgain();
        OUT.take();
        ERRORS.take();
        return true;
    }

    /** Some tools leave their client to the end of the process. */
    private static void closeClientOf(Thread thread) throws Exception {
        if (!thread.getName().startsWith("kafka-admin-client-thread"))
            return;
        try {
            Object task = task(thread);
            ((AutoCloseable) valueOf(task.getClass(), "this$0", task)).close();
        } catch (NoSuchFieldException other) {
            // Then the virtual machine ends.
        }
    }

    /** What a thread was made to run. */
    private static Object task(Thread thread) throws ReflectiveOperationException {
        try {
            return valueOf(Thread.class, "target", thread);
        } catch (NoSuchFieldException newer) {
            Object holder = valueOf(Thread.class, "holder", thread);
            return valueOf(holder.getClass(), "task", holder);
        }
    }

    private static Object valueOf(Class<?> owner, String name, Object of) throws ReflectiveOperationException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** Of these come the names of clients, such as `adminclient-1`. */
    private static final List<String> COUNTERS = List.of(
        "org.apache.kafka.clients.admin.KafkaAdminClient.ADMIN_CLIENT_ID_SEQUENCE",
        "org.apache.kafka.clients.consumer.ConsumerConfig.CONSUMER_CLIENT_ID_SEQUENCE",
        "org.apache.kafka.clients.producer.ProducerConfig.PRODUCER_CLIENT_ID_SEQUENCE");

    private static void setBack(String counter) throws ReflectiveOperationException {
        int point = counter.lastIndexOf('.');
        try {
            Field field = Class.forName(counter.substring(0, point)).getDeclaredField(counter.substring(point + 1));
            field.setAccessible(true);
            ((AtomicInteger) field.get(null)).set(1);
        } catch (ClassNotFoundException | NoSuchFieldException old) {
            // This release counts elsewhere.
        }
    }

    /** The first line of a log without a configuration makes Log4j 1 warn, once in a process. */
    private static void letLoggingWarnAgain() throws ReflectiveOperationException {
        try {
            Class<?> manager = Class.forName("org.apache.log4j.LogManager");
            Object loggers = manager.getMethod("getLoggerRepository").invoke(null);
            Field hasWarned = loggers.getClass().getDeclaredField("emittedNoAppenderWarning");
            hasWarned.setAccessible(true);
            hasWarned.setBoolean(loggers, false);
        } catch (ClassNotFoundException | NoSuchMethodException | NoSuchFieldException newer) {
            // Log4j 2 warns of nothing.
        }
    }

    // -- threads

    /** Threads that are there once for all programs: Java's, and those of the metrics of the oldest Kafka. */
    private static final List<String> SHARED = List.of("ForkJoinPool.commonPool", "metrics-meter-tick-thread");

    private static Set<Thread> threads() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        Thread[] found = new Thread[group.activeCount() + 64];
        return new HashSet<>(Arrays.asList(found).subList(0, group.enumerate(found)));
    }

    private static Set<Thread> left(Set<Thread> before) {
        Set<Thread> left = threads();
        left.removeAll(before);
        left.removeIf(one -> SHARED.stream().anyMatch(one.getName()::startsWith));
        return left;
    }

    /** The threads for which a process would not end. */
    private static Set<Thread> workers(Set<Thread> before) {
        Set<Thread> workers = left(before);
        workers.removeIf(Thread::isDaemon);
        return workers;
    }

    @SuppressWarnings("unchecked")
    private static Map<Thread, Thread> shutdownHooks() throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        return (Map<Thread, Thread>) field.get(null);
    }

    /** Now, as its own shutdown hook is no program's. */
    private static void beginLogging() throws ReflectiveOperationException {
        Class.forName("org.slf4j.LoggerFactory").getMethod("getLogger", String.class).invoke(null, "tool-server");
    }
}
