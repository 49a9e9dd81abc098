import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java client: `connect MECHANISM USER PASSWORD`, `produce MECHANISM USER PASSWORD TOPIC SECONDS`,
 * `connect-with NAME=VALUE ...` with properties, those that begin with `-D` of the virtual machine.
 */
public final class SaslClient {
    private static final String MODULES = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                List<String> answer = answer(arguments[0], line.split("\t", -1));
                out.println("ok " + answer.size());
                answer.forEach(out::println);
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                out.println("error " + cause.toString().replace('\n', ' '));
            }
            out.flush();
        }
    }

    private static List<String> answer(String bootstrap, String[] command) throws Exception {
        if (command[0].equals("connect-with")) {
            return connect(given(bootstrap, command));
        }
        Properties properties = properties(bootstrap, command[1], command[2], command[3]);
        if (command[0].equals("connect")) {
            return connect(properties);
        }
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("enable.idempotence", "false");
        properties.put("retries", "0");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(command[5]));
        long last = -1;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            while (System.nanoTime() < end) {
                last = producer.send(new ProducerRecord<>(command[4], "value")).get(30, TimeUnit.SECONDS).offset();
            }
        }
        return List.of(Long.toString(last + 1));
    }

    private static List<String> connect(Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            return List.of(admin.describeCluster().clusterId().get(30, TimeUnit.SECONDS));
        }
    }

    private static Properties given(String bootstrap, String[] command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("security.protocol", "SASL_PLAINTEXT");
        for (int i = 1; i < command.length; i++) {
            String[] pair = command[i].split("=", 2);
            if (pair[0].startsWith("-D")) {
                System.setProperty(pair[0].substring(2), pair[1]);
            } else {
                properties.put(pair[0], pair[1]);
            }
        }
        return properties;
    }

    private static Properties properties(String bootstrap, String mechanism, String user, String password) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("security.protocol", "SASL_PLAINTEXT");
        properties.put("sasl.mechanism", mechanism);
        properties.put("sasl.jaas.config", MODULES + module + " required username=\"" + user + "\" password=\""
            + password + "\";");
        return properties;
    }
}
