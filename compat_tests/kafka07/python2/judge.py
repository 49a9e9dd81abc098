"""What three old clients of Python 2 do with a broker: judge.py CLIENT ACTION PORT TOPIC ARGUMENT...

The result is one line of JSON on stdout. The clients are as their authors left them, so a Python 2.7 runs it.
"""

import json
import os
import sys

SIZE = 1024 * 1024


def samsa(port):
    """For Kafka 0.7, without ZooKeeper."""
    from samsa.client import Client
    from samsa.handlers import ThreadingHandler

    return Client("127.0.0.1", ThreadingHandler(), int(port))


def samsa_produce(port, topic, version, *values):
    client = samsa(port)
    client.produce(topic, 0, values, version=int(version))
    client.disconnect()
    return len(values)


def samsa_multiproduce(port, *topics):
    client = samsa(port)
    client.multiproduce([(topic, 0, [topic + " 1", topic + " 2"]) for topic in topics], version=1)
    client.disconnect()
    return len(topics)


def samsa_fetch(port, topic, position, size):
    """Until the end, as its consumer does it; a size that is too small it makes larger."""
    client = samsa(port)
    found, position = [], int(position)
    while True:
        try:
            messages = client.fetch(topic, 0, position, int(size))
        except Exception as error:
            return {"error": type(error).__name__}
        if not messages:
            return {"values": found, "offset": position}
        for message in messages:
            assert message.valid
            assert message.offset == position
            found.append(str(message.payload))
            position = message.next_offset


def samsa_multifetch(port, *topics):
    client = samsa(port)
    sets = client.multifetch([(topic, 0, 0, SIZE) for topic in topics])
    return [[str(message.payload) for message in one] for one in sets]


def samsa_offsets(port, topic, time, count):
    return samsa(port).offsets(topic, 0, int(time), int(count))


def brod(port):
    """For Kafka 0.6."""
    from brod import Kafka

    return Kafka("127.0.0.1", int(port))


def brod_produce(port, topic, *values):
    brod(port).produce(topic.decode(), list(values))
    return len(values)


def brod_fetch(port, topic, position):
    try:
        return brod(port).fetch(topic.decode(), int(position))
    except Exception as error:
        return {"error": type(error).__name__}


def brod_ends(port, topic):
    client = brod(port)
    return [client.earliest_offset(topic, 0), client.latest_offset(topic, 0)]


def pykafka(port, topic, kind):
    """For Kafka 0.6; `kind` is Producer or Consumer."""
    import kafka

    module = getattr(kafka, kind.lower())
    return getattr(module, kind)(topic, host="127.0.0.1", port=int(port))


def pykafka_produce(port, topic, *values):
    from kafka.message import Message

    client = pykafka(port, topic, "Producer")
    client.send([Message(value) for value in values])
    client.disconnect()
    return len(values)


def pykafka_fetch(port, topic, position):
    """It knows no answer that ends in a message, and no error."""
    client = pykafka(port, topic, "Consumer")
    client.offset = int(position)
    messages = client.consume()
    assert all(message.is_valid() for message in messages)
    return {"values": [str(message) for message in messages], "offset": client.offset}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1] + "_" + sys.argv[2]](*sys.argv[3:])))
    sys.stdout.flush()
    # A thread of samsa never ends, and Python 2.7 may crash when it takes the modules away from below it.
    os._exit(0)
