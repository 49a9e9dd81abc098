// kafkajs: arguments are broker, mechanism, user and password; exit status 1 when one gets in that must not. With CA in
// the environment, the file of an authority, it speaks TLS.
'use strict'
const assert = require('node:assert/strict')
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const ssl = process.env.CA ? { ca: [fs.readFileSync(process.env.CA)] } : false
const [broker, mechanism, username, password] = process.argv.slice(2)

async function attempt (username, password) {
  const sasl = { mechanism: mechanism.toLowerCase(), username, password }
  const kafka = new Kafka({ brokers: [broker], ssl, sasl, logLevel: logLevel.NOTHING, retry: { retries: 0 } })
  const producer = kafka.producer()
  try {
    await producer.connect()
    await producer.send({ topic: `kafkajs-${mechanism}`, messages: [{ value: 'value' }], acks: -1 })
  } finally {
    await producer.disconnect()
  }
}

async function main () {
  await attempt(username, password)
  await assert.rejects(attempt(username, 'wrong'), /uthentication/)
  await assert.rejects(attempt('nobody', password), /uthentication/)
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
