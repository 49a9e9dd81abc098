"""Rows for the tests of the writing side, and what a consumer with read_committed finds of them."""

import itertools

import pyarrow

from compat_tests.kit import readers
from compat_tests.kit.topics import create_topics
from odradek.spark.batching import Batches

_numbers = itertools.count()


def new_name(story):
    return f"{story}-{next(_numbers)}"


def new_topic(bootstrap, story, partitions=1):
    name = new_name(story)
    create_topics(bootstrap, {name: partitions})
    return name


def numbered(numbers, partitions=None, **columns):
    """An Arrow batch of numbers as values; dealt out to `partitions` where given."""
    columns["value"] = [b"%d" % number for number in numbers]
    if partitions:
        columns["partition"] = pyarrow.array([number % partitions for number in numbers], pyarrow.int32())
    return pyarrow.record_batch(columns)


def records(topic, numbers, partitions=1):
    """As `Producer.send` takes them."""
    batches = Batches(lambda _: partitions, topic=topic)
    return [*batches.add(numbered(numbers, partitions)), *batches.drain()]


def values(bootstrap, topic, partitions=1, isolation=readers.READ_COMMITTED):
    """The numbers in each partition, in order."""
    places = [(topic, number) for number in range(partitions)]
    found = readers.values_of(bootstrap, places, isolation)
    return [[int(value) for value in found[place]] for place in places]


def all_values(bootstrap, topic, partitions=1, isolation=readers.READ_COMMITTED):
    """The numbers of the whole topic, sorted, doubles included."""
    return sorted(number for there in values(bootstrap, topic, partitions, isolation) for number in there)
