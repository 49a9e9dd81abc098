#!/bin/sh
# Apache Kafka 4.4.0, TimestampConverter of Kafka Connect (connect-transforms), from text to Timestamp.
# Text behind what `format` describes is passed over. With the format yyyy-MM-dd'T'HH:mm:ss the text
# 2024-01-15T23:30:00-05:00 is half past eleven UTC: it is five hours wrong. More than three digits behind the point of
# a second are a number of milliseconds: with .SSS, .123456 is 123 s and 456 ms, and .5 is 5 ms. The day 2024-02-30 is
# the first of March.
# One would guess that text which the format does not fit is refused, as ISO 8601 is by java.time, so that
# errors.tolerance and a dead letter queue can take it.
# For users of a broker: times in the target table are hours or minutes off, without an error. Timestamps of Python and
# of PostgreSQL have six digits. Let the format have a zone (XXX) where texts have one, and cut the digits to three.
# Source: seen; TimestampConverter.java parses with a SimpleDateFormat as it is by default (lenient).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.4.0</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

cat > "$work/expected" <<'END'
2024-01-15T23:30:00-05:00 is 2024-01-15T23:30:00Z
2024-01-15T23:30:00.123456 is 2024-01-15T23:32:03.456Z
2024-01-15T23:30:00.123456+00:00 is 2024-01-15T23:32:03.456Z
2024-01-15T23:30:00.5 is 2024-01-15T23:30:00.005Z
2024-02-30 is 2024-03-01T00:00:00Z
15.01.2024 is refused
END

cat > "$work/Times.java" <<'END'
import java.util.Date;
import java.util.Map;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.TimestampConverter;

public class Times {
    static String converted(String text, String format) {
        var converter = new TimestampConverter.Value<SourceRecord>();
        converter.configure(Map.of("target.type", "Timestamp", "field", "at", "format", format));
        try {
            var record = converter.apply(new SourceRecord(null, null, "t", 0, null, Map.of("at", text)));
            return "" + ((Date) ((Map<?, ?>) record.value()).get("at")).toInstant();
        } catch (DataException refused) {
            return "refused";
        }
    }

    public static void main(String[] arguments) {
        String[][] cases = {
            {"2024-01-15T23:30:00-05:00", "yyyy-MM-dd'T'HH:mm:ss"},
            {"2024-01-15T23:30:00.123456", "yyyy-MM-dd'T'HH:mm:ss.SSS"},
            {"2024-01-15T23:30:00.123456+00:00", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"},
            {"2024-01-15T23:30:00.5", "yyyy-MM-dd'T'HH:mm:ss.SSS"},
            {"2024-02-30", "yyyy-MM-dd"},
            {"15.01.2024", "yyyy-MM-dd"},
        };
        for (String[] one : cases) {
            System.out.println(one[0] + " is " + converted(one[0], one[1]));
        }
    }
}
END
java -cp "$work/libs/*" "$work/Times.java" > "$work/seen" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "TimestampConverter reads such texts otherwise now." >&2
    exit 1
fi
