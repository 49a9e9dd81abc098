"""Values as columns: JSON by a schema, Avro by a schema file, Protobuf by a descriptor.

No value is lost: a value that does not decode keeps its bytes in the column `undecoded`, or ends the job,
depending on the mode. Spark decodes JSON and Avro (`from_json`, `from_avro`), Google's package Protobuf
(`protobuf_values`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.jars import need_jar
from odradek.spark.jobs.protobuf_values import Messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALUES = ("binary", "json", "avro", "protobuf")
FRAMINGS = ("none", "confluent")
MODES = ("permissive", "failfast")

UNDECODED = "undecoded"
RAW = "raw"
BROKEN = "_corrupt_record"
"""The column in which `from_json` puts a text that does not fit the schema."""
FRAME_BYTES = 5
"""The prefix of Confluent's serializers: a zero byte, and the schema's id, big-endian."""
IS_FRAMED = "length(value) >= 5 AND substring(value, 1, 1) = X'00'"
SCHEMA_ID = "CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS INT)"
AVRO_READER = "avroschema"
"""The option of `from_avro` for a different schema of the reader."""
END = bytes.fromhex("9d4cb3f1a7e25d80")
"""The mark after each Avro value while it is decoded, see `_avro`."""


@dataclass(frozen=True)
class Decoding:
    """How the values of a table are stored. Call `check` first."""

    value: str = "binary"
    schema: str | None = None
    """For JSON in Spark's DDL or JSON form; for Avro the content of a schema file."""
    descriptor: bytes | None = None
    """For Protobuf: a FileDescriptorSet with imports."""
    message: str | None = None
    """Full name of the message in the descriptor."""
    framing: str = "none"
    mode: str = "permissive"
    keep_raw: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's `from_json` or `from_avro`."""

    def check(self) -> None:
        """JobError for options that contradict each other, as far as that shows without Spark."""
        for name, given, known in (
            ("value", self.value, VALUES),
            ("framing", self.framing, FRAMINGS),
            ("decode mode", self.mode, MODES),
        ):
            if given not in known:
                raise JobError(f"{name} {given!r} is none: it is {', '.join(known[:-1])} or {known[-1]}")
        if (self.value in ("json", "avro")) != (self.schema is not None):
            raise JobError(
                "value json or avro needs a schema, and a schema needs one of these values: give both or "
                "neither"
            )
        is_protobuf = self.value == "protobuf"
        if (self.descriptor is not None, self.message is not None) != (is_protobuf, is_protobuf):
            raise JobError(
                "value protobuf needs a descriptor and the name of a message, and these need value protobuf: "
                "give all three or none"
            )
        if self.value == "binary" and (self.framing != "none" or self.keep_raw or self.options):
            raise JobError(
                "framing, keep_raw and decode options are for values that are decoded: give value json, avro "
                "or protobuf with them"
            )
        taken = {"mode", "columnnameofcorruptrecord"} & {name.lower() for name in self.options}
        if taken or (is_protobuf and self.options):
            name = sorted(taken or self.options)[0]
            raise JobError(
                f"the decode option {name} is not taken: it is one of Spark's from_json or from_avro, and "
                "the decode mode is for values that do not decode"
            )
        if self.value == "json":
            _with_field(str(self.schema), BROKEN)
        elif self.value == "avro":
            _avro_schema(str(self.schema))
        elif self.value == "protobuf":
            self._messages().check()

    def about(self) -> dict[str, Any]:
        """The settings that have to be the same in each run for one table."""
        descriptor = None
        if self.descriptor is not None:
            descriptor = f"sha256:{hashlib.sha256(self.descriptor).hexdigest()}"
        return {
            "value": self.value,
            "schema": self.schema,
            "descriptor": descriptor,
            "message": self.message,
            "framing": None if self.framing == "none" else self.framing,
            "raw": self.keep_raw or None,
            "decode options": dict(self.options) or None,
        }

    def apply(self, rows: "DataFrame") -> "DataFrame":
        """Decodes `value`; `undecoded` has the bytes if that fails.

        Framing adds the column `schema_id`, `keep_raw` the column `raw`. JobError for a schema that Spark
        refuses.
        """
        from pyspark.sql import functions as f

        if self.value == "binary":
            return rows
        try:
            rows = self._with_decoded(rows)
            is_broken, value = f.col("is_broken"), f.when(~f.col("is_broken"), f.col("decoded"))
            if self.mode == "failfast":
                value = f.when(is_broken, f.raise_error(f.expr(_refusal(self.value)))).otherwise(
                    f.col("decoded")
                )
            columns = {"value": value, UNDECODED: f.when(is_broken, f.col("value"))}
            if self.framing == "confluent":
                columns["schema_id"] = f.when(f.expr(IS_FRAMED), f.expr(SCHEMA_ID))
            if self.keep_raw:
                columns[RAW] = f.col("value")
            return rows.withColumns(columns).drop("decoded", "is_broken")
        except JobError:
            raise
        except Exception as error:
            raise JobError(f"values cannot be decoded as {self.value}: {sentence_of(error)}") from None

    def _with_decoded(self, rows: "DataFrame") -> "DataFrame":
        """Adds the columns `decoded` and `is_broken` (never null)."""
        from pyspark.sql import functions as f

        if self.value == "protobuf":
            return self._messages().decoded(rows)
        is_framed = self.framing == "confluent"
        payload = f.expr(f"substring(value, {FRAME_BYTES + 1})") if is_framed else f.col("value")
        decode = self._json if self.value == "json" else self._avro
        rows, decoded, does_not_fit = decode(rows, payload)
        if is_framed:
            does_not_fit |= ~f.expr(IS_FRAMED)
        return rows.withColumn("is_broken", f.col("value").isNotNull() & does_not_fit).withColumn(
            "decoded", decoded
        )

    def _json(self, rows: "DataFrame", payload: "Column") -> "tuple[DataFrame, Column, Column]":
        from pyspark.sql import functions as f

        wanted = _with_field(str(self.schema), BROKEN)
        rows = rows.withColumn("decoded", f.from_json(payload.cast("string"), wanted, dict(self.options)))
        decoded = f.col("decoded")
        does_not_fit = decoded.isNull() | f.col(f"decoded.{BROKEN}").isNotNull()
        return rows, decoded.dropFields(BROKEN), does_not_fit

    def _avro(self, rows: "DataFrame", payload: "Column") -> "tuple[DataFrame, Column, Column]":
        """Decodes each value together with a mark after it.

        `from_avro` ignores remaining bytes, and returns a record of nulls for a value that it cannot read,
        but a valid record may also have only nulls. After a value that fits only the mark remains; after a
        longer value other bytes, after a truncated value none.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.avro.functions import from_avro

        need_jar(
            rows.sparkSession,
            "org.apache.spark.sql.avro.AvroDataToCatalyst",
            "value avro",
            f"org.apache.spark:spark-avro_2.13:{rows.sparkSession.version}",
        )
        marked = f.concat(payload, f.lit(END))
        options = {"mode": "PERMISSIVE"}
        for name, value in self.options.items():
            options[name] = _with_mark(value) if name.lower() == AVRO_READER else value
        rows = rows.withColumn("decoded", from_avro(marked, _with_mark(str(self.schema)), options))
        return rows, f.col("decoded.value"), ~f.col("decoded.end").eqNullSafe(f.lit(END))

    def _messages(self) -> "Messages":
        assert self.descriptor is not None
        assert self.message is not None
        return Messages(self.descriptor, self.message, self.framing == "confluent")


def _refusal(value: str) -> str:
    """Spark's expression for the error of a value that does not decode."""
    return (
        "concat('topic ', topic, ', partition ', partition, ', offset ', offset, ': the value does not "
        f"decode as {value} with these options; decode mode permissive keeps its bytes')"
    )


def _with_field(schema: str, name: str) -> Any:
    """The schema of a struct, from Spark's DDL or JSON form, with one more field of text."""
    from pyspark.sql.types import StringType, StructType

    try:
        is_json = schema.lstrip().startswith("{")
        fields = StructType.fromJson(json.loads(schema)) if is_json else StructType.fromDDL(schema)
        return StructType([*fields.fields, StructType().add(name, StringType())[name]])
    except Exception as error:
        raise JobError(
            f"the schema {schema[:60]!r} is none in Spark's DDL or JSON form ({sentence_of(error)}): write "
            "for example 'id BIGINT, name STRING'"
        ) from None


def _with_mark(schema: str) -> str:
    """An Avro schema of a record with a value of this schema, and END."""
    mark = {"type": "fixed", "name": "odradek_end", "size": len(END)}
    fields = [{"name": "value", "type": _avro_schema(schema)}, {"name": "end", "type": mark}]
    return json.dumps({"type": "record", "name": "odradek_value", "fields": fields})


def _avro_schema(schema: str) -> Any:
    """The content of a schema file; invalid JSON is refused here, all else by Spark."""
    try:
        return json.loads(schema)
    except ValueError as error:
        raise JobError(
            f"the schema {schema[:60]!r} is not an Avro schema, which is JSON ({error}): give the content of "
            "an .avsc file, on the command line --schema @orders.avsc"
        ) from None
