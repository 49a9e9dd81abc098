"""Writes `config/option_values.pyi` from the declarations: the types of the values of options, for mypy.

Use: `PYTHONPATH=build/links python -m tools.option_values > config/option_values.pyi`, and
`tests/config/test_option_values.py` compares it with the committed file.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.config import option_list
from odradek.config.option import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING, Option

_TYPES = {
    BOOLEAN: "bool",
    STRING: "str",
    INT: "int",
    SHORT: "int",
    LONG: "int",
    DOUBLE: "float",
    LIST: "tuple[str, ...]",
    CLASS: "str",
    PASSWORD: "Secret",
}

_OPENING = '''\
"""The values of options by name, for type checkers only: there is no such module when a program runs.

This file is made by `python -m tools.option_values` from `config/option_list.py`; do not edit it.
"""

from typing import TypedDict

from odradek.config.secret import Secret
'''


def stub() -> str:
    """The whole file, formatted as ruff does it."""
    return "\n".join(
        (
            _OPENING,
            _typed_dict("BrokerValues", option_list.BROKER),
            _typed_dict("TopicValues", option_list.TOPIC),
        )
    )


def _typed_dict(name: str, options: Iterable[Option]) -> str:
    items = "".join(f'        "{option.name}": {_type(option)},\n' for option in options)
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{items}    }},\n)\n'


def _type(option: Option) -> str:
    """None is a value where neither Kafka nor Odradek has a default; `alone` is none in a cluster."""
    default = option.default if option.here is None else option.here
    kind = _TYPES[option.kind]
    return f"{kind} | None" if default is None else kind


if __name__ == "__main__":
    print(stub(), end="")
