"""The protocol of Kafka 0.7 and before: `requests.py` (requests and responses), `messages.py` (message sets),
`served.py` (stored records as messages).

It shares nothing with the protocol of later releases but the four bytes before each frame. Source: the broker
of Kafka 0.7.2 (kafka.api, kafka.message, kafka.server).
"""


class Unreadable(Exception):
    """The broker of 0.7 fails with such bytes: it closes the connection."""
