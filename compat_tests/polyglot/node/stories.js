// kafkajs against the broker at argv[2]: one line per story that held, exit status 1 at the first that did not.
'use strict'
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const run = String(Date.now())
const start = Date.now() - 3_600_000
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 5 } })
const admin = kafka.admin()

const message = n => ({
  key: n % 3 === 0 ? `key ${n}` : null,
  value: n % 3 === 1 ? null : `value ${n} ${'again '.repeat(20)}`,
  headers: n % 3 === 0 ? { h: ['one', 'two'], empty: '' } : {},
  timestamp: String(start + n * 1000)
})

async function until (what, held) {
  for (let n = 0; n < 400; n++) {
    if (await held()) return
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error(`never came: ${what}`)
}

async function fill (topic, partitions, count, compression = CompressionTypes.None, options = {}) {
  const producer = kafka.producer(options)
  await producer.connect()
  const messages = Array.from({ length: count }, (_, n) => ({ ...message(n), partition: n % partitions }))
  await producer.send({ topic, messages, compression, acks: -1 })
  await producer.disconnect()
}

// A member of a group that remembers what it was given and assigned.
async function join (group, topic, options = {}) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 200, ...options })
  const member = { consumer, records: [], assigned: [] }
  consumer.on(consumer.events.GROUP_JOIN, e => { member.assigned = e.payload.memberAssignment[topic] || [] })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { member.records.push({ partition, ...message }) } })
  return member
}

async function create (topic, numPartitions) {
  const configEntries = [{ name: 'retention.ms', value: '86400000' }]
  assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }), true)
}

async function codecs () {
  for (const codec of ['None', 'GZIP']) {
    for (const idempotent of [false, true]) {
      const topic = `kafkajs-${codec}-${idempotent}-${run}`
      await create(topic, 1)
      await fill(topic, 1, 100, CompressionTypes[codec], idempotent ? { idempotent, maxInFlightRequests: 1 } : {})
      const member = await join(topic, topic)
      await until('100 records', () => member.records.length >= 100)
      await member.consumer.disconnect()
      member.records.forEach((record, n) => {
        const sent = message(n)
        assert.equal(record.offset, String(n))
        assert.equal(record.timestamp, sent.timestamp)
        assert.equal(record.key && record.key.toString(), sent.key)
        assert.equal(record.value && record.value.toString(), sent.value)
        if (n % 3 === 0) assert.deepEqual(record.headers.h.map(String), ['one', 'two'])
      })
    }
  }
}

async function seeking () {
  const topic = `kafkajs-seek-${run}`
  await create(topic, 1)
  await fill(topic, 1, 100)
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, start + 40_000)
  assert.equal(offset, '40')
  const [{ high, low }] = await admin.fetchTopicOffsets(topic)
  assert.deepEqual([high, low], ['100', '0'])
  const member = await join(topic, topic)
  await until('all', () => member.records.length >= 100)
  member.records.length = 0
  member.consumer.seek({ topic, partition: 0, offset: '40' })
  await until('those after the seek', () => member.records.length >= 60)
  assert.equal(member.records[0].offset, '40')
  await member.consumer.disconnect()
}

async function groups () {
  const topic = `kafkajs-group-${run}`
  await create(topic, 4)
  const first = await join(topic, topic)
  await until('all four at the first', () => first.assigned.length === 4)
  const second = await join(topic, topic)
  await until('two each', () => first.assigned.length === 2 && second.assigned.length === 2)
  await first.consumer.disconnect()
  await until('all four at the second', () => second.assigned.length === 4)
  await fill(topic, 4, 40)
  await until('40 records', () => second.records.length >= 40)
  const { groups: [described] } = await admin.describeGroups([topic])
  assert.deepEqual([described.state, described.members.length], ['Stable', 1])
  await second.consumer.disconnect()
  await fill(topic, 4, 20)
  const third = await join(topic, topic)
  await until('20 records', () => third.records.length >= 20)
  await third.consumer.disconnect()
  assert.equal(third.records.length, 20)
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  assert.equal(partitions.reduce((sum, one) => sum + Number(one.offset), 0), 60)
  const { groups } = await admin.listGroups()
  assert(groups.some(one => one.groupId === topic))
  await admin.resetOffsets({ groupId: topic, topic, earliest: true })
  await admin.deleteGroups([topic])
}

async function administration () {
  const topic = `kafkajs-admin-${run}`
  await create(topic, 3)
  assert((await admin.listTopics()).includes(topic))
  const { topics: [described] } = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.equal(described.partitions.length, 3)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  assert.equal((await admin.describeCluster()).brokers.length, 1)
  const resources = [{ type: 2, name: topic }]
  const { resources: [configs] } = await admin.describeConfigs({ resources })
  assert(configs.configEntries.some(one => one.configName === 'retention.ms' && one.configValue === '86400000'))
  await admin.deleteTopics({ topics: [topic] })
}

async function refusals () {
  const topic = `kafkajs-refusals-${run}`
  await create(topic, 1)
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
  await assert.rejects(admin.createTopics({ topics: [{ topic: 'bad name!' }] }))
  await assert.rejects(admin.deleteTopics({ topics: [`absent-${run}`] }), /does not host this topic-partition/)
  const producer = kafka.producer({ retry: { retries: 0 } })
  await producer.connect()
  await assert.rejects(producer.send({ topic, messages: [{ value: Buffer.alloc(2 << 20) }] }), /larger than the max message size/)
  await producer.disconnect()
}

async function main () {
  await admin.connect()
  for (const story of [codecs, seeking, groups, administration, refusals]) {
    await story()
    console.log('held', story.name)
  }
  await admin.disconnect()
}

main().catch(failure => {
  console.error(failure)
  process.exit(1)
})
