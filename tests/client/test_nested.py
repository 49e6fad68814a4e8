"""A session is called as the module was, and gives back what the module returns; no class is imported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.bundle.structure import NestedRecord
from edgepack.client.nested import flat_inputs, nested_results
from edgepack.errors import ConfigError


def tensor(name: str) -> dict[str, Any]:
    return {"kind": "tensor", "name": name}


def held(kind: str, *items: dict[str, Any], keys: Any = (), name: str = "") -> dict[str, Any]:
    return {"kind": kind, "items": items, "keys": keys, "name": name}


NONE: dict[str, Any] = {"kind": "constant"}
CONSTANT = {"kind": "constant", "value": 2.0}
BATCH = held("dict", tensor("batch_x"), tensor("batch_mask"), keys=("x", "mask"))
RECORD = NestedRecord.model_validate(
    {
        "arguments": held(
            "tuple",
            held("tuple", BATCH, CONSTANT),
            held("dict", held("object", tensor("past_k"), keys=("k",), name="Past"), keys=("past",)),
        ),
        "results": held(
            "dict",
            held("object", tensor("logits"), keys=("logits",), name="os.system"),
            held(
                "namedtuple", tensor("a"), {"kind": "constant", "value": None}, keys=("a", "b"), name="Pair"
            ),
            held("list", held("tuple", tensor("c")), tensor("c")),
            keys=("out", "pair", "more"),
        ),
    }
)


@pytest.mark.parametrize("past", [{"k": 3}, SimpleNamespace(k=3)])
@pytest.mark.parametrize("more", [(), (2.0,)])
def test_arguments_become_inputs_by_name(past: Any, more: tuple[float, ...]) -> None:
    """Constants at the end may be left out; an object may be given as a dict."""
    found = flat_inputs(RECORD, ({"mask": 2, "x": 1}, *more), {"past": past})
    assert found == {"batch_x": 1, "batch_mask": 2, "past_k": 3}


def test_results_have_the_modules_form() -> None:
    made = nested_results(RECORD, {"logits": 1, "a": 2, "c": 3, "cache_next": 4})
    assert made["out"] == SimpleNamespace(logits=1)
    first, second = made["pair"]
    assert (first, second, made["pair"].a, type(made["pair"]).__name__) == (2, None, 2, "Pair")
    assert made["more"] == [(3,), 3]


@pytest.mark.parametrize(
    ("positional", "named", "said"),
    [
        (
            ({"x": 1, "mask": 2}, 3.0),
            {"past": {"k": 3}},
            r"Argument\[1\]: 3.0 is given, and 2.0 is",
        ),
        (
            ({"x": 1},),
            {"past": {"k": 3}},
            r"Argument\[0\]: a value of type dict with 1 is given.*'x', 'mask'",
        ),
        ((1,), {"past": {"k": 3}}, r"Argument\[0\]: a value of type int is given.*dict of x, mask"),
        ((), {"past": {"k": 3}}, "Argument: a value of type tuple with 1 is given.*tuple of 2"),
        (({"x": 1, "mask": 2},), {}, "Arguments by name: a value of type dict with 0"),
        (({"x": 1, "mask": 2},), {"past": 3}, "Past of k"),
    ],
)
def test_arguments_that_do_not_fit_are_named(positional: Any, named: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        flat_inputs(RECORD, positional, named)


def test_an_output_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="no output 'a'"):
        nested_results(RECORD, {"logits": 1, "c": 3})


@pytest.mark.parametrize("name", ["class", "1x", "__import__('os')", ""])
def test_names_of_fields_are_not_trusted(name: str) -> None:
    """Of a manifest that somebody else wrote."""
    results = held("namedtuple", tensor("a"), keys=(name,), name=name)
    record = NestedRecord.model_validate({"arguments": held("tuple"), "results": results})
    assert tuple(nested_results(record, {"a": 5})) == (5,)
    with pytest.raises(ConfigError, match="does not say"):
        flat_inputs(record, (), {})
