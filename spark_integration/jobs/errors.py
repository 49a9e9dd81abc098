"""What went wrong in a job, as one sentence: the topic or the option, and what helps."""

import re
from typing import Any

__all__ = ["JobError", "sentence_of"]

LINE_LENGTH_MAX = 400
_RAISED = re.compile(r"^\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: [0-9A-Z]{5})?$")
"""What the jobs themselves raise in an expression of Spark's is a sentence already."""
_OURS = re.compile(r"^odradek\.[A-Za-z_.]+: ")
"""The class of our own errors says nothing that their sentence does not."""


class JobError(Exception):
    """A job that cannot start or go on; the text is one sentence for a person."""


def sentence_of(error: BaseException) -> str:
    """One line of what Spark raised: the innermost cause that says something, without the Java trace."""
    if isinstance(error, JobError):
        return str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return _shortened(_java_sentence(java) or _python_sentence(str(error)) or _first_line(str(error)))


def _java_sentence(throwable: Any) -> str:
    """The innermost Java cause with a message; empty where there is none."""
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
    """What a Python worker raised, behind the last trace that Spark passes on; empty where there is none."""
    _, trace, text = message.rpartition("Traceback (most recent call last)")
    if not trace:
        return ""
    # The frames are indented, and what was raised is not.
    raised = (line for line in text.splitlines()[1:] if line.strip() and not line.startswith(" "))
    return _OURS.sub("", next(raised, "").strip())


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def _shortened(text: str) -> str:
    return text if len(text) <= LINE_LENGTH_MAX else f"{text[: LINE_LENGTH_MAX - 1]}…"
