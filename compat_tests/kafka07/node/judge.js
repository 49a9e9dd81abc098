// What three old clients of Node do with a broker: judge.js CLIENT ACTION PORT TOPIC ARGUMENT...
// The result is one line of JSON on stdout.
'use strict'

const Module = require('module')
const load = Module._load
Module._load = function (name, ...rest) {
  return load.call(this, name === 'bignum' ? require.resolve('./bignum.js') : name, ...rest)
}

const [client, action, port, topic, ...more] = process.argv.slice(2)
const address = { host: '127.0.0.1', port: Number(port) }

function tell (result) { process.stdout.write(JSON.stringify(result) + '\n', () => process.exit(0)) }
function fail (error) { throw error instanceof Error ? error : new Error(String(error)) }

// prozess, for Kafka 0.7

function produceByProzess () {
  const { Producer } = require('prozess')
  const producer = new Producer(topic, address)
  producer.on('error', fail)
  producer.connect()
  producer.on('connect', () => producer.send(more, (error) => error ? fail(error) : tell(more.length)))
}

function byProzess (then) {
  const { Consumer } = require('prozess')
  const [offset, maxMessageSize] = more
  const consumer = new Consumer({ ...address, topic, offset, maxMessageSize: Number(maxMessageSize || 1048576) })
  consumer.connect((error) => error ? fail(error) : then(consumer))
}

// Until an answer is empty; the offset after it is the client's own count.
function consumeByProzess () {
  const values = []
  byProzess(function more (consumer) {
    consumer.consume((error, messages) => {
      if (error) return tell({ error: error.message || String(error) })
      if (!messages.length) return tell({ values, offset: Number(consumer.offset.toString()) })
      for (const one of messages) {
        if (!one.isValid()) fail('a checksum is wrong')
        values.push(one.payload.toString())
      }
      more(consumer)
    })
  })
}

function offsetsByProzess () {
  byProzess((consumer) => {
    consumer.getEarliestOffset((error, earliest) => {
      if (error) fail(error)
      byProzess((other) => {
        other.getLatestOffset((failure, latest) => {
          if (failure) fail(failure)
          tell([Number(earliest.toString()), Number(latest.toString())])
        })
      })
    })
  })
}

// node-kafka, for Kafka 0.6

function produceByKafka () {
  const producer = new (require('kafka').Producer)({ ...address, topic })
  producer.on('error', fail)
  producer.connect(() => {
    producer.send(more)
    producer.close()
    tell(more.length)
  })
}

function consumeByKafka () {
  const [offset, count] = more.map(Number)
  const consumer = new (require('kafka').Consumer)({ ...address, pollInterval: 20 })
  const values = []
  consumer.on('error', (code) => tell({ error: code }))
  consumer.on('message', (_, message, next) => {
    values.push(message)
    if (values.length === count) tell({ values, offset: next })
  })
  consumer.connect(() => consumer.subscribeTopic({ name: topic, offset, partition: 0 }))
}

// franz-kafka, for Kafka 0.7

function byFranz (options, then) {
  const Kafka = require('franz-kafka')
  const brokers = [{ id: 1, ...address }]
  const kafka = new Kafka({ brokers, queueTime: 10, batchSize: 2, minFetchDelay: 1, maxFetchDelay: 100, ...options })
  kafka.on('error', fail)
  kafka.connect(() => then(kafka))
}

// It says nothing when all is written: who reads has to wait.
function produceByFranz () {
  const [compression, ...values] = more
  byFranz({ compression }, (kafka) => {
    const stream = kafka.topic(topic, { partitions: { produce: ['1:1'] } })
    stream.on('error', fail)
    for (const value of values) stream.write(value)
    process.stdin.on('end', () => tell(values.length)).resume()
  })
}

function consumeByFranz () {
  const [offset, count, maxFetchSize] = more.map(Number)
  byFranz({ maxFetchSize }, (kafka) => {
    const values = []
    const stream = kafka.topic(topic, { partitions: { consume: [`1-0:${offset}`], produce: ['1:1'] } })
    stream.on('error', (error) => tell({ error: error.message || String(error) }))
    stream.on('data', (value) => { if (values.push(value.toString()) === count) tell(values) })
    stream.resume()
  })
}

const actions = {
  prozess: { produce: produceByProzess, consume: consumeByProzess, offsets: offsetsByProzess },
  franz: { produce: produceByFranz, consume: consumeByFranz },
  kafka: { produce: produceByKafka, consume: consumeByKafka }
}
actions[client][action]()
