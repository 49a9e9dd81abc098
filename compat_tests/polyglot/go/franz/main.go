// franz-go against the broker at argv[1]: one line per story that held, exit status 1 at the first that did not.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = os.Args[1]
	run       = fmt.Sprint(time.Now().UnixNano())
	ctx, _    = context.WithTimeout(context.Background(), 90*time.Second)
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

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	must(err)
	return made
}

func create(topic string, partitions int32) {
	c := client()
	defer c.Close()
	_, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("86400000")}, topic)
	must(err)
}

func poll(c *kgo.Client, count int) []*kgo.Record {
	var got []*kgo.Record
	for len(got) < count {
		fetches := c.PollFetches(ctx)
		must(fetches.Err0())
		for _, e := range fetches.Errors() {
			must(e.Err)
		}
		got = append(got, fetches.Records()...)
	}
	check(len(got) == count, "%d records instead of %d", len(got), count)
	return got
}

func value(n int) []byte { return []byte(fmt.Sprintf("value %d %s", n, strings.Repeat("again ", 20))) }

func fill(topic string, partitions, count int, options ...kgo.Opt) {
	c := client(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer c.Close()
	for n := range count {
		record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: value(n), Timestamp: start.Add(time.Duration(n) * time.Second)}
		switch n % 3 {
		case 0:
			record.Key = []byte(fmt.Sprint("key ", n))
			record.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("one")}, {Key: "h", Value: nil}}
		case 1:
			record.Key, record.Value = []byte{}, nil
		}
		c.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err) })
	}
	must(c.Flush(ctx))
}

func codecs() {
	kinds := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range kinds {
		for _, idempotent := range []bool{true, false} {
			topic := fmt.Sprintf("franz-%s-%v-%s", name, idempotent, run)
			create(topic, 1)
			options := []kgo.Opt{kgo.ProducerBatchCompression(codec)}
			if !idempotent {
				options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			}
			fill(topic, 1, 100, options...)
			c := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			for n, r := range poll(c, 100) {
				check(r.Offset == int64(n), "%s: offset %d at %d", name, r.Offset, n)
				check(r.Timestamp.Equal(start.Add(time.Duration(n)*time.Second)), "%s: timestamp of %d", name, n)
				switch n % 3 {
				case 0:
					check(string(r.Key) == fmt.Sprint("key ", n) && len(r.Headers) == 2 && string(r.Headers[0].Value) == "one" && r.Headers[1].Value == nil, "%s: key and headers of %d", name, n)
				case 1:
					check(r.Key != nil && len(r.Key) == 0 && r.Value == nil, "%s: null value of %d", name, n)
				case 2:
					check(r.Key == nil && string(r.Value) == string(value(n)), "%s: null key of %d", name, n)
				}
			}
			c.Close()
		}
	}
}

func seeking() {
	topic := "franz-seek-" + run
	create(topic, 1)
	fill(topic, 1, 100)
	at := map[string]kgo.Offset{"offset": kgo.NewOffset().At(40), "time": kgo.NewOffset().AfterMilli(start.Add(40 * time.Second).UnixMilli()), "end": kgo.NewOffset().AtEnd().Relative(-60)}
	for name, offset := range at {
		c := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}}))
		check(poll(c, 60)[0].Offset == 40, "seek by %s", name)
		c.Close()
	}
}

// A session that outlives several appends and a new partition set: only what changed may come back, each record once.
func sessions() {
	topic := "franz-sessions-" + run
	create(topic, 20)
	c := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	defer c.Close()
	for range 5 {
		fill(topic, 20, 60)
		poll(c, 60)
	}
	c.PauseFetchPartitions(map[string][]int32{topic: {0, 1}})
	fill(topic, 20, 60)
	poll(c, 54)
	c.ResumeFetchPartitions(map[string][]int32{topic: {0, 1}})
	poll(c, 6)
}

func groups() {
	topic, group := "franz-group-"+run, "franz-group-"+run
	create(topic, 4)
	join := func() *kgo.Client {
		return client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond))
	}
	c := client()
	defer c.Close()
	admin := kadm.NewClient(c)
	waitMembers := func(count int) {
		for {
			described, err := admin.DescribeGroups(ctx, group)
			if errors.Is(err, kerr.CoordinatorNotAvailable) { // Kafka makes its offsets topic for the first group
				continue
			}
			must(err)
			one := described[group]
			shared := 0
			for _, member := range one.Members {
				if assigned, ok := member.Assigned.AsConsumer(); ok {
					for _, t := range assigned.Topics {
						shared += len(t.Partitions)
					}
				}
			}
			if len(one.Members) == count && one.State == "Stable" && (count == 0 || shared == 4) {
				return
			}
			if count == 0 && one.State == "Empty" {
				return
			}
			must(ctx.Err())
			time.Sleep(50 * time.Millisecond)
		}
	}
	first := join()
	go first.PollFetches(ctx)
	waitMembers(1)
	second := join()
	waitMembers(2)
	first.LeaveGroup()
	first.Close()
	waitMembers(1)
	fill(topic, 4, 40)
	second.Close()
	waitMembers(0)
	third := join()
	poll(third, 40)
	must(third.CommitUncommittedOffsets(ctx))
	third.Close()
	fill(topic, 4, 20)
	fourth := join()
	poll(fourth, 20)
	fourth.Close()
	waitMembers(0)
	offsets, err := admin.FetchOffsets(ctx, group)
	must(err)
	committed := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	check(committed == 40, "committed %d", committed)
	lag, err := admin.Lag(ctx, group)
	must(err)
	must(lag.Error())
	check(lag[group].Lag.Total() == 20, "lag %d", lag[group].Lag.Total())
	listed, err := admin.ListGroups(ctx)
	must(err)
	_, there := listed[group]
	check(there, "the group is not listed")
	deleted, err := admin.DeleteGroups(ctx, group)
	must(err)
	must(deleted.Error())
}

func administration() {
	topic := "franz-admin-" + run
	create(topic, 3)
	c := client()
	defer c.Close()
	admin := kadm.NewClient(c)
	topics, err := admin.ListTopics(ctx, topic)
	must(err)
	check(len(topics[topic].Partitions) == 3, "partitions: %v", topics[topic])
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err)
	must(configs[0].Err)
	_, err = admin.DescribeBrokerConfigs(ctx)
	must(err)
	metadata, err := admin.Metadata(ctx)
	must(err)
	check(len(metadata.Brokers) == 1, "brokers: %v", metadata.Brokers)
	_, err = admin.DescribeAllLogDirs(ctx, nil)
	must(err)
	_, err = admin.UpdatePartitions(ctx, 5, topic)
	must(err)
	_, err = admin.ApiVersions(ctx)
	must(err)
	gone, err := admin.DeleteTopics(ctx, topic)
	must(err)
	must(gone.Error())
}

func refusals() {
	topic := "franz-refusals-" + run
	create(topic, 1)
	c := client(kgo.ProducerBatchMaxBytes(4<<20), kgo.UnknownTopicRetries(1), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer c.Close()
	err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 2<<20)}).FirstErr()
	check(errors.Is(err, kerr.MessageTooLarge), "too large: %v", err)
	admin := kadm.NewClient(c)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, topic)
	check(errors.Is(err, kerr.TopicAlreadyExists), "exists: %v", err)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, "bad name!")
	check(errors.Is(err, kerr.InvalidTopicException), "bad name: %v", err)
	_, err = admin.DeleteTopic(ctx, "absent-"+run)
	check(errors.Is(err, kerr.UnknownTopicOrPartition), "unknown: %v", err)
	_, err = admin.DeleteGroup(ctx, "absent-"+run)
	check(errors.Is(err, kerr.GroupIDNotFound), "unknown group: %v", err)
}

func main() {
	log.SetFlags(log.Lshortfile)
	for _, story := range []struct {
		name string
		tell func()
	}{{"codecs", codecs}, {"seeking", seeking}, {"sessions", sessions}, {"groups", groups}, {"administration", administration}, {"refusals", refusals}} {
		story.tell()
		fmt.Println("held", story.name)
	}
}
