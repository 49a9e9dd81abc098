//! The rdkafka crate (librdkafka from Rust) against the broker at argument 1: a line per story that held.

use polyglot::{bootstrap, check, deadline, held, name, now_ms, value};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn settings(more: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap());
    for (option, text) in more {
        config.set(*option, *text);
    }
    config
}

fn admin() -> AdminClient<DefaultClientContext> {
    settings(&[]).create().unwrap()
}

async fn create(topic: &str, partitions: i32) -> Result<(), (String, RDKafkaErrorCode)> {
    let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1)).set("retention.ms", "86400000");
    let made = admin().create_topics(&[wanted], &AdminOptions::new()).await.unwrap();
    made.into_iter().next().unwrap().map(|_| ())
}

/// Record n goes to partition n modulo `partitions`, and is an hour and n milliseconds old.
async fn fill(topic: &str, partitions: usize, count: usize, start_ms: i64, more: &[(&str, &str)]) {
    let producer: FutureProducer = settings(more).create().unwrap();
    let mut answers = Vec::new();
    for n in 0..count {
        let (text, key) = (value(n), format!("key {n}"));
        let mut record: FutureRecord<str, str> = FutureRecord::to(topic)
            .partition((n % partitions) as i32)
            .timestamp(start_ms + n as i64)
            .headers(OwnedHeaders::new().insert(Header { key: "h", value: Some("one") }));
        if n % 3 != 1 {
            record = record.payload(&text);
        }
        if n % 3 == 0 {
            record = record.key(&key);
        }
        answers.push(producer.send_result(record).map_err(|(error, _)| error).unwrap());
    }
    for answer in answers {
        answer.await.unwrap().map_err(|(error, _)| error).unwrap();
    }
}

fn consumer(group: &str) -> BaseConsumer {
    settings(&[
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "300"),
    ])
    .create()
    .unwrap()
}

/// The next record; `BaseConsumer::poll` also returns, with nothing, after it has served a rebalance.
fn poll(consumer: &BaseConsumer) -> BorrowedMessage<'_> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(polled) = consumer.poll(PATIENCE) {
            return polled.unwrap();
        }
    }
    check!(false, "no record within {PATIENCE:?}");
    unreachable!()
}

fn assign(consumer: &BaseConsumer, topic: &str, offset: Offset) {
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(topic, 0, offset).unwrap();
    consumer.assign(&places).unwrap();
}

async fn codecs() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        for idempotent in ["true", "false"] {
            let (topic, start_ms) = (name(codec), now_ms() - 3_600_000);
            create(&topic, 1).await.unwrap();
            let more = [("compression.type", codec), ("enable.idempotence", idempotent), ("linger.ms", "5")];
            fill(&topic, 1, 100, start_ms, &more).await;
            let reader = consumer(&topic);
            assign(&reader, &topic, Offset::Beginning);
            for n in 0..100 {
                let record = poll(&reader);
                check!(record.offset() == n as i64, "{codec}: offset {} at {n}", record.offset());
                check!(record.timestamp().to_millis() == Some(start_ms + n as i64), "{codec}: time of {n}");
                check!(record.headers().unwrap().get(0).value == Some(b"one"), "{codec}: header of {n}");
                let (key, text) = (format!("key {n}"), value(n));
                check!(record.key() == (n % 3 == 0).then_some(key.as_bytes()), "{codec}: key of {n}");
                check!(record.payload() == (n % 3 != 1).then_some(text.as_bytes()), "{codec}: value of {n}");
            }
        }
    }
}

async fn seeking() {
    let (topic, start_ms) = (name("seek"), now_ms() - 3_600_000);
    create(&topic, 1).await.unwrap();
    fill(&topic, 1, 100, start_ms, &[]).await;
    let reader = consumer(&topic);
    check!(reader.fetch_watermarks(&topic, 0, PATIENCE).unwrap() == (0, 100), "watermarks");
    let mut times = TopicPartitionList::new();
    times.add_partition_offset(&topic, 0, Offset::Offset(start_ms + 40)).unwrap();
    let found = reader.offsets_for_times(times, PATIENCE).unwrap();
    check!(found.find_partition(&topic, 0).unwrap().offset() == Offset::Offset(40), "by time: {found:?}");
    for from in [Offset::Offset(40), Offset::OffsetTail(60)] {
        assign(&reader, &topic, from);
        check!(poll(&reader).offset() == 40, "read from {from:?}");
    }
}

/// Polls both until each has a share of the partitions; their records are not lost: nothing is committed.
fn share(members: &[&BaseConsumer], partitions: usize) {
    let shares = |members: &[&BaseConsumer]| -> Vec<usize> {
        members.iter().map(|member| member.assignment().unwrap().count()).collect()
    };
    while shares(members).iter().sum::<usize>() != partitions || shares(members).contains(&0) {
        for member in members {
            if let Some(polled) = member.poll(Duration::from_millis(50)) {
                polled.unwrap();
            }
        }
    }
}

/// Leaves the group. Not by a drop, which may wait for ever after that, against Apache Kafka as well.
fn leave(consumer: BaseConsumer) {
    consumer.unsubscribe();
    while consumer.assignment().unwrap().count() > 0 {
        consumer.poll(Duration::from_millis(50));
    }
    std::mem::forget(consumer);
}

/// Deletes the group as soon as its last member has left.
async fn delete(group: &str) {
    loop {
        let gone = admin().delete_groups(&[group], &AdminOptions::new()).await.unwrap();
        match &gone[0] {
            Ok(_) => return,
            Err((_, RDKafkaErrorCode::NonEmptyGroup)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(refused) => check!(false, "delete: {refused:?}"),
        }
    }
}

async fn groups() {
    let (topic, start_ms) = (name("group"), now_ms() - 3_600_000);
    create(&topic, 4).await.unwrap();
    let (first, second) = (consumer(&topic), consumer(&topic));
    first.subscribe(&[&topic]).unwrap();
    share(&[&first], 4);
    second.subscribe(&[&topic]).unwrap();
    share(&[&first, &second], 4);
    leave(first);
    share(&[&second], 4);
    fill(&topic, 4, 40, start_ms, &[]).await;
    for _ in 0..40 {
        second.commit_message(&poll(&second), CommitMode::Sync).unwrap();
    }
    leave(second);
    fill(&topic, 4, 20, start_ms, &[]).await;
    let third = consumer(&topic);
    third.subscribe(&[&topic]).unwrap();
    for _ in 0..20 {
        let record = poll(&third);
        check!(record.offset() >= 10, "a record that was committed came again");
        third.commit_message(&record, CommitMode::Sync).unwrap();
    }
    let committed = third.committed(PATIENCE).unwrap();
    let offsets: Vec<Offset> = committed.elements().iter().map(|one| one.offset()).collect();
    check!(offsets == vec![Offset::Offset(15); 4], "committed: {offsets:?}");
    let listed = admin().inner().fetch_group_list(Some(&topic), PATIENCE).unwrap();
    check!(listed.groups()[0].state() == "Stable", "state {}", listed.groups()[0].state());
    leave(third);
    delete(&topic).await;
}

async fn refusals() {
    let topic = name("refusals");
    create(&topic, 1).await.unwrap();
    let code = |refused: Result<(), (String, RDKafkaErrorCode)>| refused.err().map(|(_, code)| code);
    let exists = code(create(&topic, 1).await);
    check!(exists == Some(RDKafkaErrorCode::TopicAlreadyExists), "exists: {exists:?}");
    let bad = code(create("bad name!", 1).await);
    check!(bad == Some(RDKafkaErrorCode::InvalidTopic), "bad name: {bad:?}");
    let producer: FutureProducer = settings(&[("message.max.bytes", "4000000")]).create().unwrap();
    let large = vec![7_u8; 2_000_000];
    let record: FutureRecord<str, [u8]> = FutureRecord::to(&topic).payload(&large[..]);
    let refused = producer.send(record, PATIENCE).await.map_err(|(error, _)| error);
    let wanted = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
    check!(refused.as_ref().err() == Some(&wanted), "too large: {refused:?}");
    let resource = ResourceSpecifier::Topic(&topic);
    let described = admin().describe_configs(&[resource], &AdminOptions::new()).await.unwrap();
    let retention = described[0].as_ref().unwrap().get("retention.ms").unwrap().value.clone();
    check!(retention.as_deref() == Some("86400000"), "retention: {retention:?}");
    let gone = admin().delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
    check!(gone[0].is_ok(), "delete: {gone:?}");
}

#[tokio::main]
async fn main() {
    deadline(Duration::from_secs(150));
    codecs().await;
    held("codecs");
    seeking().await;
    held("seeking");
    groups().await;
    held("groups");
    refusals().await;
    held("refusals");
}
