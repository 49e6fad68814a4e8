"""The schema of the program in a ``.pt2`` file (``models/model.json``), as tables of forms.

It is PyTorch's (torch/_export/serde/schema.py, versions 8), with what each text and number may be. What
PyTorch makes Python of (``guards_code``, which it executes; ``source_fn_stack``, names that it looks up) and
what nothing needs is emptied; objects of classes that are not PyTorch's tensors are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from edgepack.compiler.frontend.torch.pt2.calls import TARGET, library_of, text_of
from edgepack.compiler.frontend.torch.pt2.forms import (
    Choice,
    Constant,
    Flag,
    Form,
    Integer,
    Later,
    ListOf,
    Maybe,
    Never,
    NothingIn,
    Real,
    Record,
    RefusedError,
    TableOf,
    Text,
    Variant,
    read,
)
from edgepack.compiler.frontend.torch.pt2.integers import refuse_large_integers
from edgepack.compiler.frontend.torch.pt2.names import ATTRIBUTE, KEY, NAME, NAME_OR_NONE, WORD
from edgepack.compiler.frontend.torch.pt2.nested import IN_SPEC, OUT_SPEC
from edgepack.compiler.frontend.torch.pt2.tensors import (
    DEVICE,
    DTYPE,
    LAYOUT,
    MEMORY_FORMAT,
    RANGES,
    SYM_BOOL,
    SYM_FLOAT,
    SYM_INT,
    TENSOR,
)

__all__ = ["MAJOR", "libraries", "program"]

#: Of the schema.
MAJOR = 8
#: Characters of all symbolic sizes that differ: SymPy takes some milliseconds for a hundred.
_SIZES = 400_000
_VALUES = ("sym_int_values", "sym_float_values", "sym_bool_values")

_OBJECT = Never("is an object of a class, which is no data")
_TENSOR = Record({"name": NAME})
_SYM_INT = Variant({"as_name": NAME, "as_int": Integer()})
_SYM_FLOAT = Variant({"as_name": NAME, "as_float": Real()})
_SYM_BOOL = Variant({"as_name": NAME, "as_bool": Flag()})
_OPTIONAL_TENSOR = Variant({"as_tensor": _TENSOR, "as_none": Flag()})
_COMPLEX = Record({"real": Real(), "imag": Real()})
_GRAPH_ARGUMENT = Record({"name": NAME, "graph": Later(lambda: GRAPH)})
#: Texts of calls are looked at with the call (:func:`_call`).
_ANY_TEXT = Text(lambda text: text, "a text", 10_000)

_PLAIN: dict[str, Form] = {
    "as_none": Flag(),
    "as_tensor": _TENSOR,
    "as_int": Integer(),
    "as_float": Real(),
    "as_bool": Flag(),
    "as_sym_int": _SYM_INT,
    "as_sym_float": _SYM_FLOAT,
    "as_sym_bool": _SYM_BOOL,
    "as_custom_obj": _OBJECT,
}
#: An argument or a result of a program, or of a graph in it.
_VALUE = Variant({**_PLAIN, "as_string": KEY})
#: An operand of a call.
_OPERAND = Variant(
    {
        **_PLAIN,
        "as_tensors": ListOf(_TENSOR),
        "as_ints": ListOf(Integer()),
        "as_floats": ListOf(Real()),
        "as_string": _ANY_TEXT,
        "as_strings": ListOf(_ANY_TEXT),
        "as_sym_ints": ListOf(_SYM_INT),
        "as_scalar_type": DTYPE,
        "as_memory_format": MEMORY_FORMAT,
        "as_layout": LAYOUT,
        "as_device": DEVICE,
        "as_bools": ListOf(Flag()),
        "as_sym_bools": ListOf(_SYM_BOOL),
        "as_graph": _GRAPH_ARGUMENT,
        "as_optional_tensors": ListOf(_OPTIONAL_TENSOR),
        "as_operator": TARGET,
        "as_sym_floats": ListOf(_SYM_FLOAT),
        "as_optional_tensor": _OPTIONAL_TENSOR,
        "as_complex": _COMPLEX,
        "as_nested_tensors": ListOf(ListOf(_TENSOR)),
        "as_int_lists": ListOf(ListOf(Integer())),
        "as_float_lists": ListOf(ListOf(Real())),
        "as_string_to_argument": TableOf(KEY, Later(lambda: _NESTED)),
    }
)
#: One in a table of operands, whose texts no operator's schema describes.
_NESTED: Form = Variant({**_OPERAND.forms, "as_string": KEY, "as_strings": ListOf(KEY)})
_RESULT = Variant(
    {
        **{
            name: _PLAIN[name]
            for name in ("as_none", "as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool")
        },
        **{
            name: _OPERAND.forms[name]
            for name in ("as_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools")
        },
        **{name: _OPERAND.forms[name] for name in ("as_int", "as_float", "as_bool", "as_optional_tensors")},
        "as_custom_obj": _OBJECT,
    }
)

_FRAME = re.compile(r'File "([\w.\-+/:@<> \\]{1,300})", line (\d{1,7}), in ([\w<>.]{1,200})')
_MODULE = re.compile(r"[\w.@\-+/: ]{0,500},[\w.@\-+/: ]{0,500},[\w.<>]{0,300}")


def _metadata(value: Any, levels: int) -> dict[str, str]:
    """Where a call comes from, for messages: module and lines; the rest is left out."""
    del levels
    if not isinstance(value, dict):
        raise RefusedError("is no table")
    found = {}
    frames = _FRAME.findall(str(value.get("stack_trace", ""))[:20_000])[-12:]
    if frames:
        found["stack_trace"] = "\n".join('File "{}", line {}, in {}'.format(*frame) for frame in frames)
    modules = str(value.get("nn_module_stack", ""))[:20_000]
    if modules and all(_MODULE.fullmatch(one) for one in modules.split(";")):
        found["nn_module_stack"] = modules
    return found


#: Operands of calls that take graphs.
_OF_GRAPHS = frozenset({"as_graph", "as_operator", "as_string_to_argument"})
_KIND = Maybe(Choice((0, 1, 2)))
_NAMED_OPERAND = Record({"name": NAME_OR_NONE, "arg": _OPERAND}, {"kind": _KIND})
_CALL = Record(
    {
        "target": TARGET,
        "inputs": ListOf(_NAMED_OPERAND, 10_000),
        "outputs": ListOf(_RESULT, 10_000),
        "metadata": _metadata,
    },
    {"is_hop_single_tensor_return": Maybe(Flag()), "name": Maybe(NAME)},
)


def _call(value: Any, levels: int) -> dict[str, Any]:
    """A node of a graph, with the texts among its operands looked at."""
    call = _CALL(value, levels)
    for number, one in enumerate(call["inputs"]):
        ((kind, operand),) = one["arg"].items()
        try:
            if kind == "as_string":
                one["arg"] = {kind: text_of(call["target"], one["name"], operand)}
            elif kind == "as_strings":
                one["arg"] = {kind: [text_of(call["target"], one["name"], text) for text in operand]}
            elif kind in _OF_GRAPHS and not call["target"].startswith("torch.ops.higher_order."):
                raise RefusedError(f"is no operand of {call['target']}")
        except RefusedError as refused:
            refused.inside(kind).inside("arg").inside(number).inside("inputs")
            raise
    return call


_NO_OBJECTS = NothingIn("holds objects of classes, which are no data")
_GRAPH = Record(
    {
        "inputs": ListOf(_VALUE),
        "outputs": ListOf(_VALUE),
        "nodes": ListOf(_call),
        "tensor_values": TableOf(NAME, TENSOR),
        "sym_int_values": TableOf(NAME, SYM_INT),
        "sym_bool_values": TableOf(NAME, SYM_BOOL),
    },
    {
        "is_single_tensor_return": Flag(),
        "custom_obj_values": _NO_OBJECTS,
        "sym_float_values": TableOf(NAME, SYM_FLOAT),
    },
)


def _graph(value: Any, levels: int) -> dict[str, Any]:
    graph = _GRAPH(value, levels)
    refuse_large_integers(graph["nodes"])
    return graph


GRAPH: Form = _graph

_CONSTANT = Variant(
    {"as_none": Flag(), "as_int": Integer(), "as_float": Real(), "as_string": KEY, "as_bool": Flag()}
)
_INPUT = Variant(
    {
        "user_input": Record({"arg": _VALUE}),
        "parameter": Record({"arg": _TENSOR, "parameter_name": ATTRIBUTE}),
        "buffer": Record({"arg": _TENSOR, "buffer_name": ATTRIBUTE, "persistent": Flag()}),
        "tensor_constant": Record({"arg": _TENSOR, "tensor_constant_name": ATTRIBUTE}),
        "custom_obj": _OBJECT,
        "token": Never("is a token of side effects, which nothing that is read has"),
        "constant_input": Record({"name": NAME_OR_NONE, "value": _CONSTANT}),
    }
)
_OUTPUT = Variant(
    {
        "user_output": Record({"arg": _VALUE}),
        "loss_output": Record({"arg": _TENSOR}),
        "buffer_mutation": Record({"arg": _TENSOR, "buffer_name": ATTRIBUTE}),
        "parameter_mutation": Record({"arg": _TENSOR, "parameter_name": ATTRIBUTE}),
        "gradient_to_parameter": Record({"arg": _TENSOR, "parameter_name": ATTRIBUTE}),
        "gradient_to_user_input": Record({"arg": _TENSOR, "user_input_name": NAME}),
        "user_input_mutation": Record({"arg": _TENSOR, "user_input_name": NAME}),
        "token": Never("is a token of side effects, which nothing that is read has"),
    }
)
_CALL_SIGNATURE = Record(
    {"inputs": ListOf(_VALUE), "outputs": ListOf(_VALUE), "in_spec": IN_SPEC, "out_spec": OUT_SPEC},
    {"forward_arg_names": Maybe(ListOf(NAME))},
)
_GRAPH_MODULE = Record(
    {
        "graph": GRAPH,
        "signature": Record({"input_specs": ListOf(_INPUT), "output_specs": ListOf(_OUTPUT)}),
        "module_call_graph": ListOf(
            Record({"fqn": Text(lambda text: text if not text else ATTRIBUTE.checked(text), "a name")},
                   {"signature": Maybe(_CALL_SIGNATURE)})
        ),
    },
    {"metadata": Constant(dict), "treespec_namedtuple_fields": Constant(dict)},
)  # fmt: skip
_PROGRAM = Record(
    {
        "graph_module": _GRAPH_MODULE,
        "opset_version": TableOf(WORD, Integer(0, 1000), 100),
        "range_constraints": TableOf(*RANGES, most=100_000),
        "schema_version": Record({"major": Choice((MAJOR,)), "minor": Integer(0, 1000)}),
    },
    {
        "verifiers": ListOf(Choice(("TRAINING", "ATEN", "")), 4),
        "torch_version": Text(lambda text: re.sub(r"[^\w.+<=\-]", "", text), "a version", 200),
        "guards_code": Constant(list),
    },
)


def program(value: Any) -> dict[str, Any]:
    """A copy of a program, of what was looked at. Raises RefusedError."""
    found: dict[str, Any] = read(_PROGRAM, value)
    sizes = set(_sizes(found["graph_module"]["graph"]))
    if sum(map(len, sizes)) > _SIZES:
        raise RefusedError(f"has {len(sizes)} sizes of more than {_SIZES} characters together")
    return found


def _graphs(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A graph and those in it."""
    yield graph
    for node in graph["nodes"]:
        for one in node["inputs"]:
            if "as_graph" in one["arg"]:
                yield from _graphs(one["arg"]["as_graph"]["graph"])


def _sizes(graph: dict[str, Any]) -> Iterator[str]:
    """Symbolic sizes."""
    for one in _graphs(graph):
        values = [value for name in _VALUES for value in one.get(name, {}).values()]
        for tensor in one["tensor_values"].values():
            values += [*tensor["sizes"], *tensor["strides"], tensor["storage_offset"]]
        yield from (value["as_expr"]["expr_str"] for value in values if "as_expr" in value)


def libraries(copy: dict[str, Any]) -> set[str]:
    """The libraries of the operators that a program calls: what stands before a name (``aten``)."""
    graphs = _graphs(copy["graph_module"]["graph"])
    return {library_of(node["target"]) for graph in graphs for node in graph["nodes"]} - {""}
