"""One sentence of what Spark raises."""

import pytest

from odradek.spark.jobs.errors import JobError, sentence_of

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
  File "/x/client.py", line 2, in ask
    raise ClientError("topic t is not there")
odradek.client.connection.ClientError: topic t is not there: create it

"""

HIDDEN = f"""{WORKER}
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/python_streaming_source_runner.py", line 286, in main
    reader.stop()
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""
"""A source has refused its options, and PySpark stops a reader that it never had."""


class Throwable:
    def __init__(self, message, cause=None):
        self._message, self._cause = message, cause

    def getMessage(self):
        return self._message

    def getCause(self):
        return self._cause

    def getClass(self):
        return self

    def getSimpleName(self):
        return "SomeException"


class FromJava(Exception):
    def __init__(self, throwable):
        super().__init__("An error occurred while calling o1.x.\n: java.lang.X\n\tat a.b(C.java:1)")
        self.java_exception = throwable


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (JobError("table d: no"), "table d: no"),
        (ValueError("first\nsecond"), "first"),
        (ValueError(), "no reason was given"),
        (Exception(WORKER), "topic t is not there: create it"),
        (Exception(HIDDEN), "topic t is not there: create it"),
        (
            Exception(WORKER.replace("odradek.client.connection.Client", "Key")),
            "KeyError: topic t is not there: create it",
        ),
        (FromJava(Throwable("outer", Throwable("inner\n\tat x"))), "SomeException: inner"),
        (
            FromJava(Throwable("Job aborted", Throwable(WORKER, Throwable(None)))),
            "topic t is not there: create it",
        ),
        (ValueError("x" * 1000), "x" * 399 + "…"),
    ],
)
def test_the_innermost_cause_is_told_in_one_line(error, sentence):
    assert sentence_of(error) == sentence
