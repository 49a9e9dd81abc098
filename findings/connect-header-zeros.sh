#!/bin/sh
# Apache Kafka 4.3.1, SimpleHeaderConverter of Kafka Connect (connect-api), the default of header.converter.
# It guesses the type of each header from its text, and writes the guess, not the text: the headers 00123, +5, 007.50,
# 1e3 and -0 leave a connector as 123, 5, 7.5, 1000 and 0. Blanks around a number are gone, too.
# One would guess that headers pass a connector as they are, since they are bytes and nothing has asked for a type. Keys
# and values do so with a converter of text.
# For users of a broker: postal codes, versions and account numbers in headers change on their way, also from topic to
# topic, if header.converter is not set to StringConverter or ByteArrayConverter.
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

cat > "$work/expected" <<'END'
<00123> as INT8 leaves as <123>
<+5> as INT8 leaves as <5>
<-0> as INT8 leaves as <0>
<007.50> as FLOAT32 leaves as <7.5>
<1.10> as FLOAT32 leaves as <1.1>
<1e3> as INT16 leaves as <1000>
<  7 > as INT8 leaves as <7>
<[00501,00601]> as ARRAY leaves as <[501,601]>
<0x1F> as STRING leaves as <0x1F>
END

cat > "$work/Headers.java" <<'END'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

public class Headers {
    public static void main(String[] arguments) {
        SimpleHeaderConverter converter = new SimpleHeaderConverter();
        converter.configure(Map.of());
        String[] texts = {"00123", "+5", "-0", "007.50", "1.10", "1e3", "  7 ", "[00501,00601]", "0x1F"};
        for (String text : texts) {
            SchemaAndValue inside = converter.toConnectHeader("topic", "key", text.getBytes(StandardCharsets.UTF_8));
            byte[] outside = converter.fromConnectHeader("topic", "key", inside.schema(), inside.value());
            String left = new String(outside, StandardCharsets.UTF_8);
            System.out.println("<" + text + "> as " + inside.schema().type() + " leaves as <" + left + ">");
        }
    }
}
END
java -cp "$work/libs/*" "$work/Headers.java" > "$work/seen" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Kafka Connect's SimpleHeaderConverter treats such headers otherwise now." >&2
    exit 1
fi
