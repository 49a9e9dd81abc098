// kafkajs: arguments are broker, mechanism, user and password; exit status 1 when one gets in that must not. With the
// mechanism OAUTHBEARER the user is a token, and the password is a token that is wrong. With the mechanism NONE there is no
// user. With CA in the environment, the file of an authority, it speaks TLS, and with CLIENT it has a certificate. With
// REFUSED in the environment, words of an error, what was given must be refused with them.
'use strict'
const assert = require('node:assert/strict')
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const { CA, CLIENT, REFUSED } = process.env
const ssl = CA ? { ca: [fs.readFileSync(CA)] } : false
if (CLIENT) { ssl.cert = ssl.key = fs.readFileSync(CLIENT) }
const [broker, mechanism, username, password] = process.argv.slice(2)

function login (username, password) {
  if (mechanism === 'NONE') { return undefined }
  const oauthBearerProvider = async () => ({ value: username })
  return { mechanism: mechanism.toLowerCase(), username, password, oauthBearerProvider }
}

async function attempt (username, password) {
  const sasl = login(username, password)
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
  if (REFUSED) {
    await assert.rejects(attempt(username, password), new RegExp(REFUSED))
    return
  }
  await attempt(username, password)
  if (mechanism === 'OAUTHBEARER') {
    // It takes the first answer of a refusal for a success, and is sent away with its next request.
    await assert.rejects(attempt(password, ''), /Closed connection/)
  } else if (mechanism !== 'NONE') {
    await assert.rejects(attempt(username, 'wrong'), /uthentication/)
    await assert.rejects(attempt('nobody', password), /uthentication/)
  }
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
