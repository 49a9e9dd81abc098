#!/bin/sh
# Apache Kafka 4.3.1, MirrorMaker 2 (connect-mirror) with its DefaultReplicationPolicy.
# The name of a topic up to the first dot is taken for the alias of the cluster that it came from. From the cluster "eu"
# to the cluster "us", the topic "us.orders" is then not copied, although it was made in "eu" and `topics` is ".*": it
# counts as a copy of the topic "orders" of "us", which would go round in a circle.
# One would guess that each topic is copied which `topics` fits, as the topics "orders" and "de.orders" are. That a topic
# is a copy can be seen at the other cluster.
# For users of a broker: names with a region, a team or "prod" in front are common, and so are such aliases. What is
# missing in the other cluster is noticed when it is needed. Choose aliases that no topic begins with.
# The script asks the connector which topics it copies; no cluster runs.
# Source: seen; `isCycle` and `shouldReplicateTopic` in MirrorSourceConnector.java.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

cat > "$work/expected" <<'END'
from eu to us: orders is copied
from eu to us: de.orders is copied
from eu to us: eu.orders is copied
from eu to us: us.orders is not copied
from eu to us: us-orders is copied
END

cat > "$work/Aliases.java" <<'END'
package org.apache.kafka.connect.mirror;

import java.util.List;
import java.util.Map;

public class Aliases {
    public static void main(String[] arguments) {
        var policy = new DefaultReplicationPolicy();
        policy.configure(Map.of());
        var filter = new DefaultTopicFilter();
        filter.configure(Map.of("topics", ".*"));
        var connector = new MirrorSourceConnector(
            new SourceAndTarget("eu", "us"), policy, filter, new DefaultConfigPropertyFilter());
        for (String topic : List.of("orders", "de.orders", "eu.orders", "us.orders", "us-orders")) {
            String copied = connector.shouldReplicateTopic(topic) ? "copied" : "not copied";
            System.out.println("from eu to us: " + topic + " is " + copied);
        }
    }
}
END
mkdir "$work/classes"
javac -cp "$work/libs/*" -d "$work/classes" "$work/Aliases.java"
java -cp "$work/classes:$work/libs/*" org.apache.kafka.connect.mirror.Aliases > "$work/seen" 2> "$work/log" \
    || { cat "$work/log" >&2; exit 1; }
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "MirrorMaker 2 copies other topics now." >&2
    exit 1
fi
