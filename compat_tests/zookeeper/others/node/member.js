// A member of a group by kafka-node's high-level consumer, which shares partitions through ZooKeeper.
//
//     node member.js ZOOKEEPER GROUP TOPIC
//
// Prints the value of each record, and leaves the group at SIGTERM.
'use strict'

const kafka = require('kafka-node')

const [zookeeper, groupId, topic] = process.argv.slice(2)
const client = new kafka.Client(zookeeper, undefined, { sessionTimeout: 4000 })
const consumer = new kafka.HighLevelConsumer(client, [{ topic }], { groupId, autoCommitIntervalMs: 100 })

// It takes the zeros with which a broker since Kafka 2.0 fills up an old answer for records without a value.
consumer.on('message', (record) => record.value && process.stdout.write(`${record.value}\n`))
consumer.on('error', (error) => process.stderr.write(`${error.stack || error}\n`))
process.on('SIGTERM', () => consumer.close(true, () => process.exit(0)))
