// The part of the package bignum 0.6 that prozess uses, which that package has only as compiled code for old
// versions of Node.
'use strict'

class Big {
  constructor (value) { this.value = value }
  add (other) { return new Big(this.value + bignum(other).value) }
  eq (other) { return this.value === bignum(other).value }
  toString () { return this.value.toString() }
  toBuffer () {
    const buffer = Buffer.alloc(8)
    buffer.writeBigInt64BE(this.value)
    return buffer
  }
}

function bignum (value) { return value instanceof Big ? value : new Big(BigInt(value)) }
bignum.fromBuffer = (buffer) => new Big(buffer.readBigInt64BE(0))

module.exports = bignum
