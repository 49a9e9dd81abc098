#!/bin/sh
# confluent-kafka 2.16.1 for Python, AvroSerializer, with fastavro 1.13.1 in it; beside it avro 1.12.2 of Apache.
# A field has the type ["null", "double", "long"] and gets the number 9007199254740993. A whole number is valid for
# double, too: fastavro takes the first type of a union that fits, and writes 9007199254740992.0. avro takes the last
# one that fits, and writes the number as it is. With ["null", "long", "double"] it is the other way round. No error
# says so. With float, 16777217 is already changed.
# One would guess that both write a whole number as long where the union has long, as Java does, which goes by the class
# of the value; and in any case that two libraries write the same bytes for one schema and one value.
# For users of a broker: identifiers and amounts in records differ from those that were given, with one library or the
# other whatever the order is. Keep long and double out of one union.
# Source: seen; https://avro.apache.org/docs/1.12.0/specification/#unions leaves the choice open.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "confluent-kafka[avro,schemaregistry]==2.16.1" fastavro==1.13.1 avro==1.12.2

cat > "$work/expected" <<'END'
["null", "double", "long"]: AvroSerializer 9007199254740993 -> 9007199254740992.0, avro -> 9007199254740993
["null", "long", "double"]: AvroSerializer 9007199254740993 -> 9007199254740993, avro -> 9007199254740992.0
["null", "float", "long"]: AvroSerializer 16777217 -> 16777216.0, avro -> 16777217
END

cat > "$work/unions.py" <<'END'
import io
import json

import avro.io
import avro.schema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

registry = SchemaRegistryClient.new_client({"url": "mock://finding"})


def with_serializer(topic, schema, value):
    context = SerializationContext(topic, MessageField.VALUE)
    written = AvroSerializer(registry, schema)({"number": value}, context)
    return AvroDeserializer(registry)(written, context)["number"]


def with_avro(schema, value):
    parsed, buffer = avro.schema.parse(schema), io.BytesIO()
    avro.io.DatumWriter(parsed).write({"number": value}, avro.io.BinaryEncoder(buffer))
    buffer.seek(0)
    return avro.io.DatumReader(parsed).read(avro.io.BinaryDecoder(buffer))["number"]


for number, (union, value) in enumerate(
    (
        (["null", "double", "long"], 2**53 + 1),
        (["null", "long", "double"], 2**53 + 1),
        (["null", "float", "long"], 2**24 + 1),
    )
):
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "number", "type": union}]})
    read = with_serializer(f"t{number}", schema, value)
    print(f"{json.dumps(union)}: AvroSerializer {value} -> {read}, avro -> {with_avro(schema, value)}")
END
"$work/venv/bin/python" "$work/unions.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "the numbers of a union are written otherwise now." >&2
    exit 1
fi
