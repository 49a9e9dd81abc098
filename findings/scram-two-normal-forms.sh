#!/bin/sh
# xdg-go/scram 1.4.0 (which kafka-go and the examples of sarama use) and Apache Kafka 4.3.1 (kafka-clients).
# RFC 5802 wants the password of SCRAM in the normal form of SASLprep. The Go library makes it: a half sign becomes the
# three characters of 1/2, a no-break space a space, a wide letter a plain one. Kafka takes the bytes of UTF-8 as they
# are, for kafka-configs as for its clients.
# One would guess that two implementations of one RFC derive the same key from one password.
# For users of a broker: a user whose password has such a character, which a keyboard of Europe or Japan writes, logs in
# with Java and not with Go. The answer is "invalid credentials", and both have the same password.
# Source: https://www.rfc-editor.org/rfc/rfc5802#section-2.2; ScramFormatter.java (normalize) of Kafka.
set -eu
work=$(mktemp -d)
broker=
end() {
    status=$?
    if [ -n "$broker" ]; then kill "$broker" 2> "$work/log" && wait "$broker" || true; fi
    rm -rf "$work"
    exit "$status"
}
trap end EXIT
trap 'exit 1' INT TERM
cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

mkdir "$work/go"
cat > "$work/go/go.mod" <<'END'
module finding

go 1.24
END
cat > "$work/go/main.go" <<'END'
package main

import (
	"fmt"
	"os"

	"github.com/xdg-go/scram"
)

func main() {
	for _, password := range os.Args[1:] {
		client, err := scram.SHA256.NewClient("user", password, "")
		if err != nil {
			panic(err)
		}
		keys := client.GetStoredCredentials(scram.KeyFactors{Salt: "0123456789abcdef", Iters: 4096})
		fmt.Printf("%x\n", keys.StoredKey)
	}
}
END
(cd "$work/go" && go get github.com/xdg-go/scram@v1.4.0 && go build -o "$work/program" .) > "$work/log" 2>&1 \
    || { cat "$work/log" >&2; exit 1; }

cat > "$work/Keys.java" <<'END'
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;

public class Keys {
    public static void main(String[] passwords) throws Exception {
        ScramFormatter formatter = new ScramFormatter(ScramMechanism.SCRAM_SHA_256);
        byte[] salt = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
        for (String password : passwords) {
            byte[] salted = formatter.saltedPassword(password, salt, 4096);
            System.out.println(HexFormat.of().formatHex(formatter.storedKey(formatter.clientKey(salted))));
        }
    }
}
END
set -- "plain-Password1" "pass $(printf '\302\275') word" "no$(printf '\302\240')break" \
    "$(printf '\357\274\241')wide" "Stra$(printf '\303\237')e"
export LC_ALL=C.UTF-8
"$work/program" "$@" > "$work/keys-of-go"
java -Dsun.jnu.encoding=UTF-8 -cp "$work/libs/*" "$work/Keys.java" "$@" > "$work/keys-of-java" 2> "$work/log" \
    || { cat "$work/log" >&2; exit 1; }
number=0
for what in "plain" "with a half sign" "with a no-break space" "with a wide letter" "with a sharp s"; do
    number=$((number + 1))
    if [ "$(sed -n ${number}p "$work/keys-of-go")" = "$(sed -n ${number}p "$work/keys-of-java")" ]; then
        echo "$what: the same key"
    else
        echo "$what: two keys"
    fi
done > "$work/seen"

cat > "$work/expected" <<'END'
plain: the same key
with a half sign: two keys
with a no-break space: two keys
with a wide letter: two keys
with a sharp s: the same key
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "The keys of SCRAM of the two libraries differ for other passwords now." >&2
    exit 1
fi
