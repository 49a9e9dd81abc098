import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;

/** Kafka's Java client with GSSAPI. Arguments: broker, krb5.conf; each line: `connect LOGIN_MODULE`. */
public final class KerberosClient {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("java.security.krb5.conf", arguments[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", arguments[0]);
            properties.put("security.protocol", "SASL_PLAINTEXT");
            properties.put("sasl.mechanism", "GSSAPI");
            properties.put("sasl.jaas.config", line.split("\t", -1)[1]);
            try (Admin admin = Admin.create(properties)) {
                String id = admin.describeCluster().clusterId().get(30, TimeUnit.SECONDS);
                out.println("ok 1");
                out.println(id);
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                out.println("error " + cause.toString().replace('\n', ' '));
            }
            out.flush();
        }
    }
}
