"""Questions and changes of an administrator: a module for each kind of thing, a function for each question.

Each function takes the `Cluster`, asks as few brokers as answer it, and returns values of its own, not
messages. A refusal of one thing among several is a value (`Refused`), so that the others are done; anything
else is a `ClientError`. `asking.py` finds the broker to ask, and has `Refused`.
"""
