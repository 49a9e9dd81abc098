import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Kafka Streams counts the words of a topic: arguments are broker, application id, state directory, input topic,
 * output topic and processing guarantee; further ones are settings (name=value). Splitting changes the key, so the records pass through an internal repartition topic, and the
 * counts are kept in a store with a changelog topic. Prints `state NAME` at every change of state; a line on
 * standard input that says `stop` closes it, `count WORD` prints `count NUMBER` out of the store.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[5]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        for (int number = 6; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        if (!"streams".equals(settings.get("group.protocol"))) {
            // It never leaves its group: the next run gets the partitions when this one's session is over.
            settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[3])
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[4], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.start();
        serve(streams);
        streams.close(Duration.ofSeconds(30));
        System.exit(0);
    }

    private static void serve(KafkaStreams streams) {
        java.util.Scanner lines = new java.util.Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            if (words[0].equals("stop")) {
                return;
            }
            Object count = streams.store(StoreQueryParameters.fromNameAndType(
                "counts", QueryableStoreTypes.<String, Long>keyValueStore())).get(words[1]);
            say("count " + count);
        }
    }

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
