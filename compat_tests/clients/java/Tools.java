import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, one after the other in one JVM. A line of standard input is a class and its arguments,
 * separated by tabs. The answer is `ok N` and N lines: the exit status, and all that the tool has printed.
 */
public final class Tools {
    /** Thrown where a tool would end its process. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private static Integer status;

    private static void end(int asked, String message) {
        if (status == null) {
            status = asked;
            if (message != null)
                System.err.println(message);
        }
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // Once and for all: Scala's println goes where it went at first.
        PrintStream all = new PrintStream(printed, true, "UTF-8");
        System.setOut(all);
        System.setErr(all);
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            all.flush();
            String[] lines = printed.toString("UTF-8").split("\n", -1);
            printed.reset();
            StringBuilder answer = new StringBuilder("ok " + (lines.length + 1) + "\n" + status + "\n");
            for (String one : lines)
                answer.append(one.replace("\r", "")).append("\n");
            answers.print(answer);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String mainClass, String[] words) throws Exception {
        status = null;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                if (status == null)
                    status = 1;
                System.err.println(thrown.getCause());
            }
        }
        if (status == null)
            status = 0;
    }
}
