import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Answers each line: "name HEX" with the text of a DER name, "map HEX HEX" with the user that rules make of a
 * name. All texts are hex of UTF-8; "-" is a refusal. */
public class Names {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = words[0].equals("name")
                    ? hex(new X500Principal(HexFormat.of().parseHex(words[1])).getName())
                    : hex(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
            } catch (Exception refused) {
                answer = "-";
            }
            System.out.println("=" + answer);
        }
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
