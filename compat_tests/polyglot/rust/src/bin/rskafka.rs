//! rskafka, a client in Rust alone, against the broker at argument 1: a line per story that held.

use chrono::{DateTime, Utc};
use polyglot::{bootstrap, check, deadline, held, name, now_ms, value};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use std::collections::BTreeMap;
use std::time::Duration;

fn time(milliseconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(milliseconds).unwrap()
}

fn record(n: usize, start_ms: i64) -> Record {
    Record {
        key: (n % 3 == 0).then(|| format!("key {n}").into_bytes()),
        value: (n % 3 != 1).then(|| value(n).into_bytes()),
        headers: BTreeMap::from([("h".to_owned(), b"one".to_vec())]),
        timestamp: time(start_ms + n as i64),
    }
}

async fn partition(client: &Client, topic: &str) -> PartitionClient {
    let controller = client.controller_client().unwrap();
    controller.create_topic(topic, 1, 1, 20_000).await.unwrap();
    client.partition_client(topic, 0, UnknownTopicHandling::Retry).await.unwrap()
}

async fn codecs(client: &Client) {
    for (codec_name, codec) in [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ] {
        let there = partition(client, &name(codec_name)).await;
        let start_ms = now_ms() - 3_600_000;
        let sent: Vec<Record> = (0..100).map(|n| record(n, start_ms)).collect();
        let offsets = there.produce(sent.clone(), codec).await.unwrap();
        check!(offsets == (0..100).collect::<Vec<i64>>(), "{codec_name}: offsets {offsets:?}");
        let mut next = 0;
        while next < 100 {
            let (records, high_watermark) = there.fetch_records(next, 1..1_000_000, 1000).await.unwrap();
            check!(high_watermark == 100, "{codec_name}: high watermark {high_watermark}");
            for one in records {
                check!(one.offset == next, "{codec_name}: offset {} at {next}", one.offset);
                check!(one.record == sent[next as usize], "{codec_name}: {:?}", one.record);
                next += 1;
            }
        }
    }
}

async fn seeking(client: &Client) {
    let there = partition(client, &name("seek")).await;
    let start_ms = now_ms() - 3_600_000;
    for n in 0..20 {
        there.produce(vec![record(n, start_ms)], Compression::NoCompression).await.unwrap();
    }
    check!(there.get_offset(OffsetAt::Earliest).await.unwrap() == 0, "earliest");
    check!(there.get_offset(OffsetAt::Latest).await.unwrap() == 20, "latest");
    let found = there.get_offset(OffsetAt::Timestamp(time(start_ms + 12))).await.unwrap();
    check!(found == 12, "offset by time: {found}");
    let (records, _) = there.fetch_records(15, 1..1_000_000, 1000).await.unwrap();
    check!(records[0].offset == 15, "read from {}", records[0].offset);
}

/// A fetch that waits gets the record that comes meanwhile over another connection.
async fn waiting(client: &Client) {
    let topic = name("wait");
    let there = partition(client, &topic).await;
    let other = ClientBuilder::new(vec![bootstrap()]).build().await.unwrap();
    let elsewhere = other.partition_client(&topic, 0, UnknownTopicHandling::Retry).await.unwrap();
    let (fetched, produced) = tokio::join!(
        there.fetch_records(0, 1..1_000_000, 60_000),
        elsewhere.produce(vec![record(0, now_ms())], Compression::NoCompression),
    );
    produced.unwrap();
    let (records, high_watermark) = fetched.unwrap();
    check!(records.len() == 1 && high_watermark == 1, "{} records", records.len());
}

async fn refusals(client: &Client) {
    let controller = client.controller_client().unwrap();
    let topic = name("refusals");
    controller.create_topic(&topic, 1, 1, 20_000).await.unwrap();
    let again = controller.create_topic(&topic, 1, 1, 20_000).await;
    check!(is(&again, ProtocolError::TopicAlreadyExists), "exists: {again:?}");
    let absent = controller.delete_topic(name("absent"), 20_000).await;
    check!(is(&absent, ProtocolError::UnknownTopicOrPartition), "absent: {absent:?}");
    let there = client.partition_client(&topic, 0, UnknownTopicHandling::Error).await.unwrap();
    let beyond = there.fetch_records(99, 1..1_000_000, 100).await;
    check!(is(&beyond, ProtocolError::OffsetOutOfRange), "beyond the end: {beyond:?}");
    controller.delete_topic(&topic, 20_000).await.unwrap();
    let listed = client.list_topics().await.unwrap();
    check!(listed.iter().all(|one| one.name != topic), "the topic is still listed");
}

fn is<T>(result: &Result<T, Error>, wanted: ProtocolError) -> bool {
    matches!(result, Err(Error::ServerError { protocol_error, .. }) if *protocol_error == wanted)
}

#[tokio::main]
async fn main() {
    deadline(Duration::from_secs(90));
    let client = ClientBuilder::new(vec![bootstrap()]).build().await.unwrap();
    codecs(&client).await;
    held("codecs");
    seeking(&client).await;
    held("seeking");
    waiting(&client).await;
    held("waiting");
    refusals(&client).await;
    held("refusals");
}
