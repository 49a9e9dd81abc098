import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;

/**
 * Runs brokers of Kafka in one virtual machine. The first takes three seconds of processor time to start, and
 * many more until its code is compiled; those after it a tenth of that.
 *
 * A line of standard input is a command and its arguments, separated by tabs: `format ARGUMENT...` as for the
 * storage tool, `start FILE`, `stop FILE`. The answer is `ok 0`, or `error TEXT` in one line. What brokers log
 * goes to standard error. All end with the standard input.
 */
public final class BrokerHost {
    private static final Map<String, KafkaRaftServer> SERVERS = new ConcurrentHashMap<>();

    private BrokerHost() { }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        // One broker that gives up is no reason for the others to end.
        refuseExits();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(answer(line.split("\t", -1)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void refuseExits() throws ReflectiveOperationException {
        Class<?> exit = exitClass();
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object refusal = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure},
            (proxy, method, values) -> {
                throw new IllegalStateException(
                    "a broker wants to end with status " + values[0] + ": " + values[1]);
            });
        exit.getMethod("setExitProcedure", procedure).invoke(null, refusal);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, refusal);
    }

    /** The class of Kafka that ends the process; 4.4 has it in another package. */
    private static Class<?> exitClass() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        }
    }

    private static String answer(String[] words) {
        try {
            run(words);
            return "ok 0";
        } catch (Throwable problem) {
            problem.printStackTrace();
            return "error " + problem.toString().replace('\n', ' ');
        }
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "format":
                format(words);
                break;
            case "start":
                start(words[1]);
                break;
            case "stop":
                stop(words[1]);
                break;
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static void format(String[] words) {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        int status = StorageTool.execute(words, new PrintStream(output, true, StandardCharsets.UTF_8));
        if (status != 0) {
            throw new IllegalArgumentException(output.toString(StandardCharsets.UTF_8));
        }
    }

    private static void start(String file) throws Exception {
        KafkaConfig config = KafkaConfig.fromProps(Utils.loadProps(file), false);
        KafkaRaftServer server = new KafkaRaftServer(config, Time.SYSTEM);
        SERVERS.put(file, server);
        server.startup();
    }

    private static void stop(String file) {
        // None where its settings were refused.
        KafkaRaftServer server = SERVERS.remove(file);
        if (server != null) {
            server.shutdown();
        }
    }
}
