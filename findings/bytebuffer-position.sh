#!/bin/sh
# Apache Kafka 4.3.1 (kafka-clients), ByteBufferSerializer.
# It writes the buffer from its begin on, not from its position on. A buffer of "abcdef" of which two bytes were read,
# such as a length or a magic number, is written as "abcdef". A slice of the same rest is written as "cdef".
# One would guess that the bytes between position and limit are written, which is what ByteBuffer calls "remaining" and
# what channels, digests and decoders of Java take.
# For users of a broker: records hold bytes that the program had already taken off, and consumers read a wrong begin.
# No error is raised. Give `buffer.slice()` to the producer.
# Source: the serializer's documentation only says that buffers need no flip; KAFKA-4852 of its issues.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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

cat > "$work/expected" <<'END'
remaining in the buffer: cdef
written of the buffer: abcdef
written of its slice: cdef
written of a direct buffer: abcdef
END

cat > "$work/Position.java" <<'END'
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.ByteBufferSerializer;

public class Position {
    public static void main(String[] arguments) {
        ByteBuffer buffer = read(ByteBuffer.allocate(16));
        System.out.println("remaining in the buffer: " + StandardCharsets.US_ASCII.decode(buffer.duplicate()));
        System.out.println("written of the buffer: " + written(buffer));
        System.out.println("written of its slice: " + written(read(ByteBuffer.allocate(16)).slice()));
        System.out.println("written of a direct buffer: " + written(read(ByteBuffer.allocateDirect(16))));
    }

    /** With "abcdef", of which two bytes were read. */
    static ByteBuffer read(ByteBuffer buffer) {
        buffer.put("abcdef".getBytes(StandardCharsets.US_ASCII)).flip();
        buffer.getShort();
        return buffer;
    }

    static String written(ByteBuffer buffer) {
        try (ByteBufferSerializer serializer = new ByteBufferSerializer()) {
            return new String(serializer.serialize("topic", buffer), StandardCharsets.US_ASCII);
        }
    }
}
END
java -cp "$work/libs/*" "$work/Position.java" > "$work/seen" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Kafka's ByteBufferSerializer takes other bytes of a buffer now." >&2
    exit 1
fi
