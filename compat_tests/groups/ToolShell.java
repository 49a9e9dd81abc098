import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line programs, unmodified, one after the other in one virtual machine: to start one for
 * each takes longer than all that it does. A line of standard input is a class and its arguments, separated by
 * tabs. The answer is `@@ STATUS N` and N lines: what the program wrote to its standard output and error.
 */
public final class ToolShell {
    private static final class Ended extends Error {
        Ended(int status) {
            super("ended with status " + status, null, false, false);
        }
    }

    /** What a program writes, until it exits: what the catch blocks of its callers write then is none of it. */
    private static final class Capture extends ByteArrayOutputStream {
        private Integer status;

        synchronized void end(int with) {
            if (status == null) {
                status = with;
            }
        }

        @Override
        public synchronized void write(int one) {
            if (status == null) {
                super.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            if (status == null) {
                super.write(bytes, from, length);
            }
        }
    }

    private ToolShell() { }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            Capture capture = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            String[] lines = capture.toString(StandardCharsets.UTF_8).split("\n", -1);
            answers.println("@@ " + (capture.status == null ? 0 : capture.status) + " " + lines.length);
            for (String one : lines) {
                answers.println(one);
            }
            answers.flush();
        }
    }

    private static Capture run(String mainClass, String[] arguments) throws Exception {
        Capture capture = new Capture();
        PrintStream stream = new PrintStream(capture, true, StandardCharsets.UTF_8);
        Exit.Procedure ending = (status, message) -> {
            capture.end(status);
            throw new Ended(status);
        };
        Exit.setExitProcedure(ending);
        Exit.setHaltProcedure(ending);
        System.setOut(stream);
        System.setErr(stream);
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException problem) {
            problem.getCause().printStackTrace();
            capture.end(1);
        }
        return capture;
    }
}
