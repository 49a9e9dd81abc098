#!/bin/sh
# Apache Kafka 4.3.1 (kafka-clients), compression.lz4.level of producers, topics and brokers.
# The levels are 1 to 17, the default is 9. Level 9 is the quickest and packs worst: the client takes lz4's fast
# compressor for it. All other levels, 1 among them, are lz4's thorough compressor (HC) with that level.
# One would guess that a higher level packs better and takes longer, as with gzip and zstd and as KIP-390 says of levels.
# For users of a broker: who lowers the level to 1 to save time makes producers or the broker several times slower. Who
# sets 9 to save space changes nothing.
# Source: https://cwiki.apache.org/confluence/display/KAFKA/KIP-390%3A+Support+Compression+Level; Lz4Compression.java.
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
default level 9
gzip: level 9 packs better than level 1
zstd: level 9 packs better than level 1
lz4: level 9 packs worse than level 1
lz4: level 9 packs worse than level 3
lz4: level 9 packs worse than level 8
lz4: level 9 packs worse than level 10
END

cat > "$work/Levels.java" <<'END'
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public class Levels {
    static byte[] text;

    public static void main(String[] arguments) throws Exception {
        StringBuilder lines = new StringBuilder();
        Random random = new Random(1);
        for (int i = 0; i < 20_000; i++) {
            lines.append("{\"id\":" + random.nextInt(10_000) + ",\"name\":\"customer-" + random.nextInt(100) + "\"}\n");
        }
        text = lines.toString().getBytes(StandardCharsets.UTF_8);
        Object standard = ProducerConfig.configDef().defaultValues().get(ProducerConfig.COMPRESSION_LZ4_LEVEL_CONFIG);
        System.out.println("default level " + standard);
        compare("gzip", packed(Compression.gzip().level(9).build()), packed(Compression.gzip().level(1).build()), 1);
        compare("zstd", packed(Compression.zstd().level(9).build()), packed(Compression.zstd().level(1).build()), 1);
        for (int level : new int[] {1, 3, 8, 10}) {
            compare("lz4", packed(Compression.lz4().level(9).build()), packed(Compression.lz4().level(level).build()), level);
        }
    }

    static int packed(Compression compression) throws Exception {
        ByteBufferOutputStream packed = new ByteBufferOutputStream(1 << 20);
        try (OutputStream stream = compression.wrapForOutput(packed, (byte) 2)) {
            stream.write(text);
        }
        return packed.buffer().position();
    }

    static void compare(String codec, int ofNine, int ofOther, int other) {
        String how = ofNine < ofOther ? "better than" : ofNine > ofOther ? "worse than" : "like";
        System.out.println(codec + ": level 9 packs " + how + " level " + other);
        System.err.println(codec + ": " + ofNine + " bytes at level 9, " + ofOther + " at level " + other);
    }
}
END
java -cp "$work/libs/*" "$work/Levels.java" > "$work/seen" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
grep bytes "$work/log"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Kafka's levels of lz4 are ordered otherwise now." >&2
    exit 1
fi
