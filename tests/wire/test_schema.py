"""A struct is a dataclass for everybody who asks, though `dataclass` writes none at its declaration."""

import copy
import pickle
from dataclasses import asdict, fields, is_dataclass, replace

import pytest

from odradek.wire.schema import INT32, STRING, Array, Struct, Versioned, on_wire


class Inner(Struct):
    secret: str = on_wire(STRING, hidden=True)


class Outer(Versioned, versions=(0, 3)):
    name: str = on_wire(STRING)
    numbers: list[int] = on_wire(Array(INT32), since=1)
    inner: Inner = on_wire(Inner)


def undeclared():
    """Two classes of which nothing has been asked yet."""

    class First(Struct):
        name: str = on_wire(STRING)

    class Last(Versioned, versions=(0, 0)):
        items: list[First] = on_wire(Array(First))

    return First, Last


def test_each_object_has_defaults_of_its_own():
    one, other = Outer(), Outer(name="other")
    one.numbers.append(1)
    one.inner.secret = "s"
    assert (one.numbers, other.numbers) == ([1], [])
    assert (other.name, other.inner) == ("other", Inner())
    assert one != other


@pytest.mark.parametrize("wrong", [{"nam": ""}, {"name": "", "versions": 3}])
def test_a_constructor_takes_its_fields_by_name_alone(wrong):
    First, _ = undeclared()
    for _ in range(2):  # the first one is made by another way
        with pytest.raises(TypeError):
            First(**wrong)
        with pytest.raises(TypeError):
            First("name")
        assert First(name="name").name == "name"


def test_the_functions_of_dataclasses_know_it_before_its_first_object():
    First, Last = undeclared()
    assert is_dataclass(Last)
    assert [field.name for field in fields(First)] == ["name"]
    one = Last(items=[First(name="a")])
    assert replace(one, items=[]).items == []
    assert asdict(one) == {"items": [{"name": "a"}]}


def test_a_copy_is_equal_and_another_one():
    one = Outer(name="n", numbers=[2], inner=Inner(secret="s"))
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), replace(one)):
        assert other == one
        assert other is not one
    assert one != replace(one, numbers=[])


def test_a_repr_has_all_but_hidden_fields():
    assert repr(Outer(name="n", inner=Inner(secret="s"))) == "Outer(name='n', numbers=[], inner=Inner())"


def test_a_struct_has_no_place_for_other_attributes():
    with pytest.raises(AttributeError):
        Outer().other = 1
    with pytest.raises(TypeError, match="Wider adds fields to a struct that has some"):

        class Wider(Outer):
            more: int = on_wire(INT32)
