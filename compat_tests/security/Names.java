import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Answers each line: "name HEX" with the text of a DER name, "map HEX HEX" with the user that rules make of a
 * name, "short HEX HEX" with the user that rules, one a line, make of a principal. All texts are hex of UTF-8; "-" is a refusal. */
public class Names {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = hex(answer(words));
            } catch (Exception refused) {
                answer = "-";
            }
            System.out.println("=" + answer);
        }
    }

    static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "name":
                return new X500Principal(HexFormat.of().parseHex(words[1])).getName();
            case "map":
                return SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
            default:
                List<String> rules = List.of(text(words[1]).split("\n", -1));
                return KerberosShortNamer.fromUnparsedRules("HOME", rules).shortName(KerberosName.parse(text(words[2])));
        }
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
