// IBM/sarama against the broker at argv[1]: one line per story that held, exit status 1 at the first that did not.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var (
	bootstrap = []string{os.Args[1]}
	run       = fmt.Sprint(time.Now().UnixNano())
	ctx, _    = context.WithTimeout(context.Background(), 150*time.Second)
	start     = time.UnixMilli(time.Now().UnixMilli() - 3_600_000)
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

func settings(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	return config
}

func admin() sarama.ClusterAdmin {
	made, err := sarama.NewClusterAdmin(bootstrap, settings(sarama.MaxVersion))
	must(err)
	return made
}

func create(topic string, partitions int32) {
	a := admin()
	defer a.Close()
	day := "86400000"
	must(a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &day}}, false))
}

// Record n of a partition: every third has a key and, where the version knows them, a header.
func fill(topic string, partitions, count int, config *sarama.Config) {
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	must(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for n := range count {
		m := &sarama.ProducerMessage{Topic: topic, Partition: int32(n % partitions), Value: sarama.StringEncoder(fmt.Sprint("value ", n)), Timestamp: start.Add(time.Duration(n) * time.Second)}
		if n%3 == 0 {
			m.Key = sarama.StringEncoder(fmt.Sprint("key ", n))
			if config.Version.IsAtLeast(sarama.V0_11_0_0) {
				m.Headers = []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("one")}}
			}
		}
		messages = append(messages, m)
	}
	must(producer.SendMessages(messages))
	for n, m := range messages {
		check(m.Offset >= 0, "no offset for %d", n)
	}
}

func read(topic string, from int64, count int, config *sarama.Config) []*sarama.ConsumerMessage {
	consumer, err := sarama.NewConsumer(bootstrap, config)
	must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, from)
	must(err)
	defer partition.Close()
	var got []*sarama.ConsumerMessage
	for len(got) < count {
		select {
		case m := <-partition.Messages():
			got = append(got, m)
		case <-ctx.Done():
			check(false, "%s: %d records instead of %d", topic, len(got), count)
		}
	}
	return got
}

// Each version of Kafka that sarama is told of has its own forms: message sets up to 0.10, batches from 0.11 on.
func codecs() {
	versions := []sarama.KafkaVersion{sarama.V0_8_2_0, sarama.V0_10_2_0, sarama.V0_11_0_0, sarama.V2_1_0_0, sarama.MaxVersion}
	kinds := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, version := range versions {
		for _, kind := range kinds {
			if kind == sarama.CompressionZSTD && !version.IsAtLeast(sarama.V2_1_0_0) || kind == sarama.CompressionLZ4 && !version.IsAtLeast(sarama.V0_10_0_0) {
				continue
			}
			topic := fmt.Sprintf("sarama-%s-%s-%s", version, kind, run)
			create(topic, 1)
			config := settings(version)
			config.Producer.Compression = kind
			fill(topic, 1, 100, config)
			for n, m := range read(topic, sarama.OffsetOldest, 100, config) {
				check(m.Offset == int64(n) && string(m.Value) == fmt.Sprint("value ", n), "%s: %v at %d", topic, m, n)
				check((m.Key != nil) == (n%3 == 0), "%s: key of %d", topic, n)
				if version.IsAtLeast(sarama.V0_11_0_0) {
					check((len(m.Headers) == 1) == (n%3 == 0), "%s: headers of %d", topic, n)
				}
				if version.IsAtLeast(sarama.V0_10_0_0) {
					check(m.Timestamp.Equal(start.Add(time.Duration(n)*time.Second)), "%s: timestamp of %d", topic, n)
				}
			}
		}
	}
}

func idempotence() {
	topic := "sarama-idempotent-" + run
	create(topic, 3)
	config := settings(sarama.MaxVersion)
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	for range 3 {
		fill(topic, 3, 300, config)
	}
	check(len(read(topic, sarama.OffsetOldest, 300, config)) == 300, "records of partition 0")
}

func seeking() {
	topic := "sarama-seek-" + run
	create(topic, 1)
	config := settings(sarama.MaxVersion)
	fill(topic, 1, 100, config)
	client, err := sarama.NewClient(bootstrap, config)
	must(err)
	defer client.Close()
	at, err := client.GetOffset(topic, 0, start.Add(40*time.Second).UnixMilli())
	must(err)
	check(at == 40, "offset by time: %d", at)
	newest, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	must(err)
	check(newest == 100, "newest: %d", newest)
	check(string(read(topic, 40, 60, config)[0].Value) == "value 40", "read from 40")
}

// A member of a group: counts the records of its claims and commits each.
type member struct {
	sync.Mutex
	claims map[string][]int32
	seen   map[string]int
	left   chan struct{}
	leave  context.CancelFunc
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.claims = session.Claims()
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.Lock()
		m.seen[fmt.Sprintf("%d/%d", message.Partition, message.Offset)]++
		m.Unlock()
		session.MarkMessage(message, "")
		session.Commit()
	}
	return nil
}

func (m *member) partitions(topic string) int {
	m.Lock()
	defer m.Unlock()
	return len(m.claims[topic])
}

func (m *member) records() int {
	m.Lock()
	defer m.Unlock()
	return len(m.seen)
}

func join(group, topic string) *member {
	consumers, err := sarama.NewConsumerGroup(bootstrap, group, settings(sarama.MaxVersion))
	must(err)
	stay, leave := context.WithCancel(ctx)
	m := &member{seen: map[string]int{}, left: make(chan struct{}), leave: leave}
	go func() {
		for stay.Err() == nil {
			must(consumers.Consume(stay, []string{topic}, m))
		}
		must(consumers.Close())
		close(m.left)
	}()
	return m
}

func (m *member) goAway() {
	m.leave()
	<-m.left
}

func until(claim func() bool, what string) {
	for !claim() {
		check(ctx.Err() == nil, "not in time: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func groups() {
	topic := "sarama-group-" + run
	create(topic, 4)
	first := join(topic, topic)
	until(func() bool { return first.partitions(topic) == 4 }, "one member has all")
	second := join(topic, topic)
	until(func() bool { return first.partitions(topic) == 2 && second.partitions(topic) == 2 }, "two share")
	fill(topic, 4, 40, settings(sarama.MaxVersion))
	until(func() bool { return first.records() == 20 && second.records() == 20 }, "each has its half")
	first.goAway()
	until(func() bool { return second.partitions(topic) == 4 }, "the other has all")
	fill(topic, 4, 40, settings(sarama.MaxVersion))
	until(func() bool { return second.records() == 60 }, "the rest")
	second.goAway()
	a := admin()
	defer a.Close()
	offsets, err := a.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1, 2, 3}})
	must(err)
	committed := int64(0)
	for _, block := range offsets.Blocks[topic] {
		committed += block.Offset
	}
	check(committed == 80, "committed %d", committed)
	listed, err := a.ListConsumerGroups()
	must(err)
	_, there := listed[topic]
	check(there, "the group is not listed")
	described, err := a.DescribeConsumerGroups([]string{topic})
	must(err)
	check(described[0].State == "Empty", "state %s", described[0].State)
	must(a.DeleteConsumerGroup(topic))
}

func administration() {
	topic := "sarama-admin-" + run
	create(topic, 3)
	a := admin()
	defer a.Close()
	must(a.CreatePartitions(topic, 5, nil, false))
	topics, err := a.ListTopics()
	must(err)
	check(topics[topic].NumPartitions == 5 && *topics[topic].ConfigEntries["retention.ms"] == "86400000", "listed: %v", topics[topic])
	described, err := a.DescribeTopics([]string{topic})
	must(err)
	check(len(described[0].Partitions) == 5, "described: %v", described[0])
	configs, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	must(err)
	check(configs[0].Value == "86400000", "configs: %v", configs)
	brokers, controller, err := a.DescribeCluster()
	must(err)
	check(len(brokers) == 1 && brokers[0].ID() == controller, "cluster: %v", brokers)
	dirs, err := a.DescribeLogDirs([]int32{controller})
	must(err)
	check(len(dirs[controller]) == 1, "log directories: %v", dirs)
	must(a.DeleteTopic(topic))
}

func refusals() {
	topic := "sarama-refusals-" + run
	create(topic, 1)
	config := settings(sarama.MaxVersion)
	config.Producer.MaxMessageBytes = 4 << 20
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	must(err)
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(make([]byte, 2<<20))})
	check(errors.Is(err, sarama.ErrMessageSizeTooLarge), "too large: %v", err)
	a := admin()
	defer a.Close()
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	check(errors.Is(a.CreateTopic(topic, detail, false), sarama.ErrTopicAlreadyExists), "exists")
	check(errors.Is(a.CreateTopic("bad name!", detail, false), sarama.ErrInvalidTopic), "bad name")
	check(errors.Is(a.DeleteTopic("absent-"+run), sarama.ErrUnknownTopicOrPartition), "unknown topic")
	check(errors.Is(a.DeleteConsumerGroup("absent-"+run), sarama.ErrGroupIDNotFound), "unknown group")
}

func main() {
	log.SetFlags(log.Lshortfile)
	for _, story := range []struct {
		name string
		tell func()
	}{{"codecs", codecs}, {"idempotence", idempotence}, {"seeking", seeking}, {"groups", groups}, {"administration", administration}, {"refusals", refusals}} {
		story.tell()
		fmt.Println("held", story.name)
	}
}
