// Share consumers of franz-go behind the lines of text of share_groups/ShareDriver.java: `franz_share BOOTSTRAP`.
// franz-go fetches ahead and sends acknowledgements by itself; its callback tells of partitions, not of offsets.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var kinds = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

type member struct {
	client  *kgo.Client
	records map[string]*kgo.Record
	mutex   sync.Mutex
	results map[string]string // the first failure of each partition since the last commit, or "-"
}

func (m *member) told(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, one := range results {
		place := fmt.Sprintf("%s\t%d", one.Topic, one.Partition)
		if one.Err != nil {
			m.results[place] = strings.ReplaceAll(one.Err.Error(), "\t", " ")
		} else if _, known := m.results[place]; !known {
			m.results[place] = "-"
		}
	}
}

func (m *member) takeResults() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var lines []string
	for place, failure := range m.results {
		lines = append(lines, place+"\t"+failure)
	}
	m.results = map[string]string{}
	return lines
}

func open(bootstrap, group, topics string, settings []string) (*member, error) {
	m := &member{records: map[string]*kgo.Record{}, results: map[string]string{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ShareGroup(group), kgo.ConsumeTopics(strings.Split(topics, ",")...),
		kgo.ShareAckCallback(m.told), kgo.MetadataMinAge(100 * time.Millisecond),
	}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "max.poll.records":
			count, err := strconv.Atoi(value)
			if err != nil {
				return nil, err
			}
			options = append(options, kgo.ShareMaxRecords(int32(count)))
		case "share.acquire.mode":
			if value == "record_limit" {
				options = append(options, kgo.ShareMaxRecordsStrict())
			}
		case "share.acknowledgement.mode": // both are one here: what is not marked is accepted by the next poll
		default:
			return nil, fmt.Errorf("no such setting: %s", name)
		}
	}
	client, err := kgo.NewClient(options...)
	m.client = client
	return m, err
}

func (m *member) poll(patience time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fetches := m.client.PollFetches(ctx)
	for _, one := range fetches.Errors() {
		if !errors.Is(one.Err, context.DeadlineExceeded) {
			return nil, one.Err
		}
	}
	var lines []string
	fetches.EachRecord(func(r *kgo.Record) {
		place := fmt.Sprintf("%s\t%d\t%d", r.Topic, r.Partition, r.Offset)
		m.records[place] = r
		key := "-"
		if r.Key != nil {
			key = string(r.Key)
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\t%s\t%s", place, r.DeliveryCount(), key, r.Value))
	})
	return lines, nil
}

func milliseconds(text string) time.Duration {
	count, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(count) * time.Millisecond
}

func main() {
	bootstrap, members, in := os.Args[1], map[string]*member{}, bufio.NewScanner(os.Stdin)
	answer := func(command []string) ([]string, error) {
		m := members[command[1]]
		switch command[0] {
		case "open":
			made, err := open(bootstrap, command[2], command[3], command[4:])
			members[command[1]] = made
			return nil, err
		case "poll":
			return m.poll(milliseconds(command[2]))
		case "acknowledge":
			count, err := strconv.Atoi(command[2])
			for number := 0; number < count && in.Scan(); number++ {
				line := strings.Split(in.Text(), "\t")
				place := strings.Join(line[:3], "\t")
				if record, known := m.records[place]; known {
					record.Ack(kinds[line[3]])
				} else {
					err = fmt.Errorf("%s was not polled", place)
				}
			}
			return nil, err
		case "commit-sync":
			ctx, cancel := context.WithTimeout(context.Background(), milliseconds(command[2]))
			defer cancel()
			if err := m.client.FlushAcks(ctx); err != nil {
				return nil, err
			}
			return m.takeResults(), nil
		case "close":
			delete(members, command[1])
			m.client.Close()
			return nil, nil
		}
		return nil, fmt.Errorf("no such command: %s", command[0])
	}
	for in.Scan() {
		lines, err := answer(strings.Split(in.Text(), "\t"))
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("ok", len(lines))
		for _, line := range lines {
			fmt.Println(line)
		}
	}
}
