"""Errors of jobs as one sentence: the topic or the option, and the remedy."""

import re
from typing import Any

LINE_LENGTH_MAX = 400
_RAISED = re.compile(r"^\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: [0-9A-Z]{5})?$")
"""Errors that a job raises in an expression of Spark are a sentence already."""
_OURS = re.compile(r"^odradek\.[A-Za-z_.]+: ")
"""The class names of our own errors add nothing to their sentence."""
_DURING = "During handling of the above exception, another exception occurred:"
_NO_READER = "UnboundLocalError: cannot access local variable 'reader'"
"""PySpark's own error after that of a source that refuses its options: there is no reader to be stopped."""


class JobError(Exception):
    """A job cannot start or continue; the text is one sentence for a person."""


def sentence_of(error: BaseException) -> str:
    """One line for an error of Spark: the innermost cause with a message, without the Java trace."""
    if isinstance(error, JobError):
        return str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return _shortened(_java_sentence(java) or _python_sentence(str(error)) or _first_line(str(error)))


def _java_sentence(throwable: Any) -> str:
    """The innermost Java cause with a message; empty if there is none."""
    found = ""
    while throwable is not None:
        message = throwable.getMessage()
        if message and message.strip():
            name, line = throwable.getClass().getSimpleName(), _first_line(message)
            ours = _RAISED.match(line)
            found = _python_sentence(message) or (ours[1] if ours else f"{name}: {line}")
        throwable = throwable.getCause()
    return found


def _python_sentence(message: str) -> str:
    """The error of a Python worker, after the last trace in the message; empty if there is none."""
    before, _, after = message.rpartition(_DURING)
    if _NO_READER in after:
        message = before
    _, trace, text = message.rpartition("Traceback (most recent call last)")
    if not trace:
        return ""
    # The frames are indented, the error is not.
    raised = (line for line in text.splitlines()[1:] if line.strip() and not line.startswith(" "))
    return _OURS.sub("", next(raised, "").strip())


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def _shortened(text: str) -> str:
    return text if len(text) <= LINE_LENGTH_MAX else f"{text[: LINE_LENGTH_MAX - 1]}…"
