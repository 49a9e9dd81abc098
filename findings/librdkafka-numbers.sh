#!/bin/sh
# confluent-kafka 2.16.1 for Python, with librdkafka 2.16.0 in it.
# A whole number in the configuration is read up to the first character that does not fit. The rest is dropped,
# without an error and without a warning: "45s" is 45, "300 000" is 300, "1e4" is 1.
# A leading zero makes the number octal: "010" is 8. What does not fit into 32 bits is cut: "4294968296" is 1000.
# One would guess that such values are refused, as Java's client does with all of them: "abc" is, and so is "yes"
# for a switch.
# For users of a broker: a time-out of "45s" is 45 milliseconds. The groups then rebalance for ever, or records
# expire before they are sent, and one looks for the fault in the broker.
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1

cat > "$work/expected" <<'END'
librdkafka 2.16.0
session.timeout.ms '45s' is 45
session.timeout.ms '1e4' is 1
session.timeout.ms '010' is 8
session.timeout.ms '0x10' is 16
message.timeout.ms '300 000' is 300
message.timeout.ms '300_000' is 300
message.max.bytes '4294968296' is 1000
linger.ms '5s' is 5
linger.ms 'abc' is refused
enable.auto.commit 'yes' is refused
END

cat > "$work/numbers.py" <<'END'
import ctypes
import pathlib

import confluent_kafka

packages = pathlib.Path(confluent_kafka.__file__).parents[1]
library = ctypes.CDLL(str(next(packages.glob("confluent_kafka.libs/librdkafka*"))))
library.rd_kafka_conf_new.restype = ctypes.c_void_p


def read_back(name, text):
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    told = ctypes.create_string_buffer(512)
    if library.rd_kafka_conf_set(configuration, name.encode(), text.encode(), told, 512):
        return "refused"
    size = ctypes.c_size_t(512)
    library.rd_kafka_conf_get(configuration, name.encode(), told, ctypes.byref(size))
    return told.value.decode()


print("librdkafka", confluent_kafka.libversion()[0])
for name, text in (
    ("session.timeout.ms", "45s"),
    ("session.timeout.ms", "1e4"),
    ("session.timeout.ms", "010"),
    ("session.timeout.ms", "0x10"),
    ("message.timeout.ms", "300 000"),
    ("message.timeout.ms", "300_000"),
    ("message.max.bytes", "4294968296"),
    ("linger.ms", "5s"),
    ("linger.ms", "abc"),
    ("enable.auto.commit", "yes"),
):
    print(f"{name} {text!r} is {read_back(name, text)}")
END
"$work/venv/bin/python" "$work/numbers.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "librdkafka reads numbers of its configuration otherwise now." >&2
    exit 1
fi
