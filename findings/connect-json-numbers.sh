#!/bin/sh
# Apache Kafka 4.3.1, JsonConverter of Kafka Connect (connect-json), on valid JSON.
# Without schemas an integer of more than 64 bits loses its upper bits: 18446744073709551615 becomes -1.
# With a schema a value of another type becomes zero, false or null: the text "12" in an int32 field is 0, the text "true"
# in a boolean field is false, the number 12 in a string field is null. 300 in an int8 field is 44.
# One would guess that a converter refuses what it cannot represent: a null in a field that must not be null is refused,
# and errors.tolerance of Connect is there for that.
# For users of a broker: a sink writes wrong numbers into its table, and no dead letter queue gets the record. The
# records in the topic are right.
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

cat > "$work/expected" <<'END'
18446744073709551615 is -1
{"id":18446744073709551615} is {id=-1}
9223372036854775807 is 9223372036854775807
{"schema":{"type":"int8"},"payload":300} is 44
{"schema":{"type":"int32"},"payload":4294967297} is 1
{"schema":{"type":"int32"},"payload":"12"} is 0
{"schema":{"type":"boolean"},"payload":"true"} is false
{"schema":{"type":"string","optional":false},"payload":12} is null
{"schema":{"type":"int32"},"payload":null} is refused
END

cat > "$work/Numbers.java" <<'END'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

public class Numbers {
    public static void main(String[] arguments) {
        show(false, "18446744073709551615");
        show(false, "{\"id\":18446744073709551615}");
        show(false, "9223372036854775807");
        show(true, "{\"schema\":{\"type\":\"int8\"},\"payload\":300}");
        show(true, "{\"schema\":{\"type\":\"int32\"},\"payload\":4294967297}");
        show(true, "{\"schema\":{\"type\":\"int32\"},\"payload\":\"12\"}");
        show(true, "{\"schema\":{\"type\":\"boolean\"},\"payload\":\"true\"}");
        show(true, "{\"schema\":{\"type\":\"string\",\"optional\":false},\"payload\":12}");
        show(true, "{\"schema\":{\"type\":\"int32\"},\"payload\":null}");
    }

    static void show(boolean schemas, String json) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", Boolean.toString(schemas)), false);
        String result;
        try {
            result = String.valueOf(converter.toConnectData("topic", json.getBytes(StandardCharsets.UTF_8)).value());
        } catch (DataException refusal) {
            result = "refused";
        }
        System.out.println(json + " is " + result);
    }
}
END
java -cp "$work/libs/*" "$work/Numbers.java" > "$work/seen" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Kafka Connect's JsonConverter converts such numbers otherwise now." >&2
    exit 1
fi
