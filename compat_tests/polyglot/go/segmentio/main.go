// segmentio/kafka-go against the broker at argv[1]: a line per story that held, exit status 1 at the first that did not.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

var (
	bootstrap = os.Args[1]
	run       = fmt.Sprint(time.Now().UnixNano())
	ctx, _    = context.WithTimeout(context.Background(), 90*time.Second)
	client    = &kafka.Client{Addr: kafka.TCP(bootstrap)}
)

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func check(held bool, format string, args ...any) {
	if !held {
		log.Output(2, fmt.Sprintf(format, args...))
		os.Exit(1)
	}
}

func dial() *kafka.Conn {
	conn, err := kafka.DialContext(ctx, "tcp", bootstrap)
	must(err)
	return conn
}

func create(topic string, partitions int) {
	conn := dial()
	defer conn.Close()
	must(conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}))
}

func fill(topic string, count int, codec kafka.Compression) {
	// A transport of its own: the shared one remembers for seconds which topics there were.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{Transport: transport, Addr: kafka.TCP(bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 10 * time.Millisecond, Balancer: &kafka.RoundRobin{}}
	defer writer.Close()
	messages := make([]kafka.Message, count)
	for n := range messages {
		messages[n] = kafka.Message{Key: []byte(fmt.Sprint("key ", n)), Value: []byte(fmt.Sprint("value ", n)), Headers: []kafka.Header{{Key: "h", Value: []byte("one")}}}
		if n%3 == 1 {
			messages[n].Key = nil
		}
	}
	must(writer.WriteMessages(ctx, messages...))
}

func codecs() {
	for name, codec := range map[string]kafka.Compression{"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd} {
		topic := "segmentio-" + name + "-" + run
		create(topic, 1)
		fill(topic, 100, codec)
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, MaxWait: 200 * time.Millisecond})
		must(reader.SetOffset(40))
		for n := 40; n < 100; n++ {
			m, err := reader.ReadMessage(ctx)
			must(err)
			check(m.Offset == int64(n) && string(m.Value) == fmt.Sprint("value ", n) && len(m.Headers) == 1, "%s: %v at %d", name, m, n)
		}
		reader.Close()
	}
}

func connection() {
	topic := "segmentio-conn-" + run
	create(topic, 1)
	conn, err := kafka.DialLeader(ctx, "tcp", bootstrap, topic, 0)
	must(err)
	defer conn.Close()
	_, err = conn.WriteMessages(kafka.Message{Value: []byte("one")}, kafka.Message{Value: []byte("two")})
	must(err)
	_, err = conn.Seek(1, kafka.SeekAbsolute)
	must(err)
	m, err := conn.ReadMessage(1 << 20)
	must(err)
	check(string(m.Value) == "two", "read %q", m.Value)
	first, last, err := conn.ReadOffsets()
	must(err)
	check(first == 0 && last == 2, "offsets %d to %d", first, last)
}

func groups() {
	topic := "segmentio-group-" + run
	create(topic, 2)
	fill(topic, 40, 0)
	for round := range 2 {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
		for range 20 + 20*(1-round) {
			m, err := reader.FetchMessage(ctx)
			must(err)
			must(reader.CommitMessages(ctx, m))
		}
		must(reader.Close())
		if round == 0 {
			fill(topic, 20, 0)
		}
	}
	offsets, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: topic, Topics: map[string][]int{topic: {0, 1}}})
	must(err)
	sum := int64(0)
	for _, one := range offsets.Topics[topic] {
		sum += one.CommittedOffset
	}
	check(sum == 60, "committed %d", sum)
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{topic}})
	must(err)
	check(described.Groups[0].GroupState == "Empty", "state %s", described.Groups[0].GroupState)
	_, err = client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{topic}})
	must(err)
}

func refusals() {
	conn := dial()
	defer conn.Close()
	err := conn.DeleteTopics("absent-" + run)
	check(errors.Is(err, kafka.UnknownTopicOrPartition), "unknown topic: %v", err)
}

func main() {
	log.SetFlags(log.Lshortfile)
	for _, story := range []struct {
		name string
		tell func()
	}{{"codecs", codecs}, {"connection", connection}, {"groups", groups}, {"refusals", refusals}} {
		story.tell()
		fmt.Println("held", story.name)
	}
}
