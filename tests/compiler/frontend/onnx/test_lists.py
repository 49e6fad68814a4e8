"""Lists of tensors and optional values (ONNX's sequence operators): what becomes of them, compared with ONNX
Runtime and the standard's evaluator; what is refused, and what the refusal says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.onnx.standard_regions import with_standard_regions
from edgepack.compiler.frontend.onnx.summary import summarise
from edgepack.errors import ModelError
from edgepack.plan.limits import Limits
from workbench.compiled import Compiled, assert_close
from workbench.models.drawn_lists import DrawnLists
from workbench.models.evaluate import random_inputs, run_onnxruntime


def parsed(graph: str, opset: int = 17) -> onnx.ModelProto:
    """A model in ONNX's text format."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}'
    model: onnx.ModelProto = onnx.parser.parse_model(text)
    return model


def normal(model: onnx.ModelProto) -> onnx.ModelProto:
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    bind(bound, shapes={}, dims={})
    return normalise(bound)


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Those of the normalised model."""
    return Counter(node.op_type for node in all_nodes(normal(model).graph))


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert (np.shape(one), one.dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


#: Graphs, what becomes of them, and what inputs of some are in a run of a number.
PARTS: dict[str, tuple[str, str]] = {
    "equal parts, of which the last is smaller": (
        """g (float[2,7,3] x) => (float[2,3,3] y, float[2,1,3] z, int64 n)
        <int64 k = {3}, int64 zero = {0}, int64 one = {1}, int64 last = {-1}> {
            s = SplitToSequence<axis = -2>(x, k)
            a = SequenceAt(s, zero)  b = SequenceAt(s, one)  z = SequenceAt(s, last)
            y = Add(a, b)  n = SequenceLength(s)
        }""",
        "Split Add",
    ),
    "one of parts of several sizes": (
        """g (float[2,7,3] x) => (float[2,4,3] y) <int64[3] k = {1,4,2}, int64 one = {1}> {
            s = SplitToSequence<axis = 1, keepdims = 0>(x, k)  y = SequenceAt(s, one)
        }""",
        "Slice",
    ),
    "unbound": (
        """g (float[2,4,3] x) => (float[2,3] y, float[2,1,3] z) <int64 place = {-3}> {
            s = SplitToSequence<axis = 1, keepdims = 0>(x)  y = SequenceAt(s, place)
            t = SplitToSequence<axis = 1>(x)  z = SequenceAt(t, place)
        }""",
        "Gather Slice",
    ),
    "joined again, which is no work": (
        """g (float[2,4,3] x) => (float[2,3,4] a, float[8,3] b, float[2,4,3] c, float[4,2,3] d) {
            s = SplitToSequence<axis = 1, keepdims = 0>(x)  t = SplitToSequence<axis = 1>(x)
            a = ConcatFromSequence<axis = -1, new_axis = 1>(s)  b = ConcatFromSequence<axis = 0>(s)
            c = ConcatFromSequence<axis = 1>(t)  d = ConcatFromSequence<axis = 0, new_axis = 1>(s)
        }""",
        "Identity Transpose Transpose Reshape",
    ),
    "inserted and erased": (
        """g (float[2,3] x, float[2,3] z) => (float[2,9] y, int64 n) <int64 zero = {0}, int64 last = {-1}> {
            s = SequenceConstruct(x, z)  a = Relu(x)  t = SequenceInsert(s, a, zero)
            u = SequenceErase(t, last)  v = SequenceInsert(u, z, last)  w = SequenceInsert(v, x)
            q = SequenceErase(w)  y = ConcatFromSequence<axis = -1>(q)  n = SequenceLength(w)
        }""",
        "Relu Concat",
    ),
    "begun empty, of integers": (
        """g (int64[2,3] x) => (int64[2,6] y, int64 n) {
            s = SequenceEmpty<dtype = 7>()  n = SequenceLength(s)  t = SequenceInsert(s, x)
            u = SequenceInsert(t, x)  y = ConcatFromSequence<axis = 1>(u)
        }""",
        "Concat",
    ),
    "frames of which the first is replaced by one at the end": (
        """g (float[9,3] x, float[1,3] z) => (float[9,3] y) <int64 zero = {0}> {
            s = SplitToSequence(x)  t = SequenceErase(s, zero)  u = SequenceInsert(t, z)
            y = ConcatFromSequence<axis = -2>(u)
        }""",
        "Slice Concat",
    ),
    "sizes and positions that are computed from shapes": (
        """g (float[12,3] x) => (float[1,3] y)
        <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 six = {6}> {
            s = SplitToSequence(x, six)  a = SequenceAt(s, one)
            shape = Shape(a)  rows = Gather(shape, zero)  half = Div(rows, two)
            t = SplitToSequence(a, half)  n = SequenceLength(t)  last = Sub(n, one)
            b = SequenceAt(t, last)  u = SplitToSequence(b, one)  y = SequenceAt(u, zero)
        }""",
        "Slice Slice Slice",
    ),
}

POSITIONS: dict[str, tuple[str, str]] = {
    "a part that a run chooses": (
        """g (float[2,4,3] x, int64 p) => (float[2,3] a, float[2,1,3] b, float[2,2,3] c) <int64 two = {2}> {
            s = SplitToSequence<axis = 1, keepdims = 0>(x)  a = SequenceAt(s, p)
            t = SplitToSequence<axis = 1>(x)  b = SequenceAt(t, p)
            u = SplitToSequence<axis = 1>(x, two)  half = Div(p, two)  c = SequenceAt(u, half)
        }""",
        "Gather Gather Gather Reshape Reshape Div",
    ),
    "tensors that a run chooses, inserts and erases": (
        """g (float[2,3] x, float[2,3] z, int64 p) => (float[2,3] a, float[4,2,3] b, float[2,2,3] c) {
            w = Relu(z)  s = SequenceConstruct(x, z, w)  r = SequenceAt(s, p)  a = Neg(r)
            t = SequenceInsert(s, w, p)  b = ConcatFromSequence<axis = 0, new_axis = 1>(t)
            v = SequenceErase(s, p)  c = ConcatFromSequence<axis = 0, new_axis = 1>(v)
        }""",
        "",
    ),
}

INSIDE: dict[str, tuple[str, str]] = {
    "two branches that give lists": (
        """g (float[2,3] x, float[2,3] z, bool c) => (float[2,6] y, float[2,3] a)
        <int64 zero = {0}, float[3,3] w = {1,2,3,4,5,6,7,8,9}> {
            l = SequenceConstruct(x, z)
            s = If(c) <then_branch = t () => (seq(float[2,3]) ts) {
                q = SequenceAt(l, zero)  k = MatMul(q, w)  ts = SequenceInsert(l, k, zero)
            }, else_branch = e () => (seq(float[2,3]) es) { es = SequenceInsert(l, x) }>
            v = SequenceErase(s)  y = ConcatFromSequence<axis = 1>(v)  a = SequenceAt(s, zero)
        }""",
        "EdgepackRegion Identity Identity Identity Identity Identity Identity MatMul Concat",
    ),
    "a loop that reads a list and appends to another": (
        """g (float[200,2,3] x, float[2,3] h)
        => (float[2,3] y, float[2,3] z, float[200,2,3] all, float[400,3] r)
        <bool yes = {1}, int64 n = {200}, float[3,3] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9},
        int64 last = {-1}, int64 seven = {7}> {
            s = SplitToSequence<axis = 0, keepdims = 0>(x)  e = SequenceEmpty()
            end, outs = Loop(n, yes, h, e) <body = b (int64 i, bool go, float[?,?] hi, seq(float[]) l)
            => (bool on, float[?,?] ho, seq(float[]) l2) {
                on = Identity(go)  xt = SequenceAt(s, i)  m = MatMul(hi, w)  k = Add(m, xt)
                q = Abs(k)  ho = Tanh(q)  l2 = SequenceInsert(l, ho)
            }>
            y = SequenceAt(outs, last)  z = SequenceAt(outs, seven)
            all = ConcatFromSequence<axis = 0, new_axis = 1>(outs)  r = ConcatFromSequence<axis = 0>(outs)
        }""",
        "",
    ),
    "a loop that carries a list of states": (
        """g (float[200,2,3] x, float[2,3] h, float[2,3] k) => (float[2,3] y, float[2,3] z)
        <bool yes = {1}, int64 n = {200}, float[3,3] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9},
        int64 zero = {0}, int64 one = {1}> {
            st = SequenceConstruct(h, k)
            r = Loop(n, yes, st) <body = b (int64 i, bool go, seq(float[]) l) => (bool on, seq(float[]) l2) {
                on = Identity(go)  xt = Gather<axis = 0>(x, i)
                a = SequenceAt(l, zero)  c = SequenceAt(l, one)
                m = MatMul(a, w)  t = Add(m, xt)  q = Abs(t)  a2 = Tanh(q)  c2 = Mul(a2, c)
                l3 = SequenceErase(l, zero)  l4 = SequenceInsert(l3, a2, zero)  l5 = SequenceErase(l4)
                l2 = SequenceInsert(l5, c2)
            }>
            y = SequenceAt(r, zero)  z = SequenceAt(r, one)
        }""",
        "",
    ),
    "a loop that puts tensors of another shape before those that are there": (
        """g (float[4,3] x, float[2,6,2] z) => (float[6,2] y, int64 n)
        <bool yes = {1}, int64 two = {2}, int64 zero = {0}> {
            s = SequenceConstruct(x, x)
            r = Loop(two, yes, s) <body = b (int64 i, bool go, seq(float[]) l) => (bool on, seq(float[]) l2) {
                on = Identity(go)  l2 = SequenceInsert(l, z, zero)
            }>
            a = SequenceAt(r, zero)  t = SplitToSequence<axis = -3, keepdims = 0>(a)
            n = SequenceLength(t)  y = SequenceAt(t, zero)
        }""",
        "Gather",
    ),
    "a map": (
        """g (float[2,6] x, float[2,3] z) => (float[2,6] y, float[6,2] w) <int64 three = {3}> {
            s = SplitToSequence<axis = 1>(x, three)
            a, b = SequenceMap(s, z) <body = f (float[2,3] e, float[2,3] t) => (float[2,3] p, float[3,2] q) {
                p = Sub(e, t)  q = Transpose(p)
            }>
            y = ConcatFromSequence<axis = 1>(a)  w = ConcatFromSequence<axis = 0>(b)
        }""",
        "Split Sub Sub Transpose Transpose Concat Concat",
    ),
}

OPTIONALS: dict[str, tuple[str, str]] = {
    "an optional value that is there, and one that is not": (
        """g (float[2,3] x) => (float[2,3] y, bool h, float[2,3] z) {
            o = Optional(x)  h = OptionalHasElement(o)  v = OptionalGetElement(o)  y = Neg(v)
            a = Optional<type = float[2,3]>()  there = OptionalHasElement(a)
            z = If(there) <then_branch = t () => (float[2,3] tz) { tz = OptionalGetElement(a) },
                else_branch = e () => (float[2,3] ez) { ez = Relu(x) }>
        }""",
        "Neg Relu",
    ),
    "an optional list, and one value of two": (
        """g (float[2,3] x, bool c) => (float[2,6] y, float[2,3] w) {
            s = SequenceConstruct(x, x)  a = Optional(s)  q = OptionalGetElement(a)
            b = If(c) <then_branch = t () => (optional(float[2,3]) to) { r = Relu(x)  to = Optional(r) },
                else_branch = e () => (optional(float[2,3]) eo) { eo = Optional(x) }>
            v = OptionalGetElement(b)  w = Neg(v)  y = ConcatFromSequence<axis = 1>(q)
        }""",
        "Relu Reshape Where Neg Concat",
    ),
}

#: What an input is in runs, by its name.
GIVEN: Mapping[str, Callable[[int], object]] = {
    "p": lambda run: np.int64([-1, 0, 2][run]),
    "c": lambda run: np.asarray(run == 1),
}


def checked(model: onnx.ModelProto, *, by_the_standard: bool) -> None:
    """Compares the normalised model with the model itself, on several inputs."""
    run = with_standard_regions(normal(model))
    for number in range(3):
        inputs = random_inputs(model, number)
        inputs |= {name: np.asarray(GIVEN[name](number)) for name in GIVEN if name in inputs}
        expected = run_onnxruntime(model, inputs)
        if by_the_standard:
            assert_same([np.asarray(r) for r in ReferenceEvaluator(model).run(None, inputs)], expected)
        assert_same(run_onnxruntime(run, inputs), expected)


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_lists_are_what_they_are_made_of(opset: int) -> None:
    for graph, becomes in {**PARTS, **POSITIONS}.values():
        model = parsed(graph, opset)
        checked(model, by_the_standard=opset == 13)
        if becomes and opset != 11:
            found = operators(model)
            del found["Identity"]
            assert found == Counter(one for one in becomes.split() if one != "Identity"), graph


@pytest.mark.parametrize("name", [*INSIDE, *OPTIONALS])
def test_lists_go_through_branches_loops_maps_and_optional_values(name: str) -> None:
    graph, becomes = {**INSIDE, **OPTIONALS}[name]
    model = parsed(graph)
    # The evaluator gives optional values as lists, and does not erase at the position that it is told.
    checked(model, by_the_standard=name in INSIDE and "Erase" not in graph and "zero)" not in graph)
    if becomes:
        assert operators(model) == Counter(becomes.split())


def test_they_are_compiled(tmp_path: Path) -> None:
    """In this machine's code, with memory that nobody wrote poisoned."""
    names = ("equal parts, of which the last is smaller", "joined again, which is no work")
    graphs = {name: PARTS[name][0] for name in names} | {name: one for name, (one, _) in POSITIONS.items()}
    graphs["loop"] = INSIDE["a loop that carries a list of states"][0]
    models = {name: parsed(graph) for name, graph in graphs.items()}
    compiled = Compiled(models, tmp_path)
    for name, model in models.items():
        for number in range(3 if "int64 p" in graphs[name] else 1):
            inputs = random_inputs(model, number)
            inputs |= {one: np.asarray(GIVEN[one](number)) for one in GIVEN if one in inputs}
            got = compiled.run(name, inputs, seed=number)
            assert_close(model, got, compiled.expected(name, inputs))


UNBIND = """g (float[{steps},2,4] x) => (float[{steps},2,4] all, float[2,4] last)
<int64 one = {{1}}, int64 end = {{-1}}, float[2,4] h = {{0,0,0,0,0,0,0,0}}, bool yes = {{1}},
float[4] bias = {{1,2,3,4}},
float[4,4] a = {{0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.1,0.2,0.3,0.4,0.5,0.6,0.7}}> {{
    e = SequenceEmpty<dtype = 1>()  s = SplitToSequence<axis = 0, keepdims = 0>(x, one)  n = SequenceLength(s)
    final, outs = Loop(n, yes, h, e) <body = b (int64 i, bool cond, float[2,4] hi, seq(float[?,?,?]) l)
    => (bool on, float ho, seq(float[?,?,?]) l2) {{
        xt = SequenceAt(s, i)  m = MatMul(xt, a)  t = Add(bias, m)
        r = Gemm<alpha = 1.0, beta = 1.0, transB = 1>(hi, a, bias)  u = Add(t, r)  ho = Tanh(u)
        l2 = SequenceInsert(l, ho)  on = Identity(yes)
    }}>
    all = ConcatFromSequence<axis = 0, new_axis = 1>(outs)  last = SequenceAt(outs, end)
}}"""


@pytest.mark.parametrize("steps", [5, 200])
def test_a_loop_over_unbind_as_pytorch_exports_it_is_a_recurrent_layer(steps: int) -> None:
    """TorchScript's exporter writes ``unbind`` with parts of size 1 and keepdims 0, which the standard says
    is ignored: they have no axis, as in ONNX Runtime. The shapes of what a loop carries are not written."""
    model = parsed(UNBIND.format(steps=steps))
    checked(model, by_the_standard=False)
    found = operators(model)
    assert found["RNN"] == 1 and found.keys().isdisjoint(("Loop", "EdgepackRegion", "Tanh"))


# Outputs and inputs -----------------------------------------------------------------------------------------


def saved(folder: Path, graph: str, opset: int = 17) -> Path:
    path = folder / "model.onnx"
    onnx.save(parsed(graph, opset), path)
    return path


def test_a_list_that_is_an_output_is_its_tensors(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        """g (float16[2,7,3] x)
        => (seq(float16) s, float[2,3] q, seq(float[]) r, optional(float[2,3]) o)
        <int64 k = {3}, int64 one = {1}, bool yes = {1}, int64 four = {4}, int64 last = {-1}> {
            s = SplitToSequence<axis = 1>(x, k)  t = Gather<axis = 1>(x, one)  u = Cast<to = 1>(t)
            q = Relu(u)  start = SequenceConstruct(q)  w = Neg(q)  o = Optional(w)
            r = Loop(four, yes, start) <body = b (int64 i, bool go, seq(float[]) l)
            => (bool on, seq(float[]) l2) {
                on = Identity(go)  a = SequenceAt(l, last)  c = Sin(a)  l2 = SequenceInsert(l, c)
            }>
        }""",
    )
    said = frontend.prepare(path, ImportOptions(), tmp_path)
    assert said == (
        "The output 's' is a list: its tensors are s_0, s_1, s_2.",
        "The output 'r' is a list: its tensors are r_0, r_1, r_2, r_3, r_4.",
    )
    ready = onnx.load(tmp_path / "model.onnx")
    outputs = ["s_0", "s_1", "s_2", "q", "r_0", "r_1", "r_2", "r_3", "r_4", "o"]
    assert [value.name for value in ready.graph.output] == outputs
    assert ready.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    whole = parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    whole.CopyFrom(
        onnx.load(saved(tmp_path, "g (float[2,4] x) => (seq(float[]) s) { s = SplitToSequence(x) }"))
    )
    opened = open_model(tmp_path / "model.onnx", ImportOptions())
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert_same(run_onnxruntime(opened, {"x": x}), [x[:1], x[1:]])


def test_a_list_whose_length_a_run_decides_is_no_output(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        """g (float[2,3] x, int64 n) => (seq(float[]) s) <bool yes = {1}> {
            e = SequenceEmpty()
            s = Loop(n, yes, e) <body = b (int64 i, bool go, seq(float[]) l) => (bool on, seq(float[]) l2) {
                on = Identity(go)  l2 = SequenceInsert(l, x)
            }>
        }""",
    )
    with pytest.raises(
        ModelError, match="output 's' is a list of tensors, and how many is known at run time"
    ):
        frontend.prepare(path, ImportOptions(), tmp_path)


@pytest.mark.parametrize(("kind", "what"), [("seq", "a list of tensors"), ("optional", "an optional value")])
def test_a_list_is_no_input_but_can_be_cut_away(kind: str, what: str, tmp_path: Path) -> None:
    taken = "SequenceAt(x, zero)" if kind == "seq" else "OptionalGetElement(x)"
    graph = f"g ({kind}(float[2,3]) x) => (float[2,3] y) <int64 zero = {{0}}> {{ t = {taken}  y = Relu(t) }}"
    path = saved(tmp_path, graph)
    with pytest.raises(ModelError, match=f"'x' is {what}") as caught:
        frontend.prepare(path, ImportOptions(), tmp_path)
    assert "--inputs" in caught.value.hint
    opened = open_model(path, ImportOptions(inputs=("t:float32",), shapes={"t": (2, 3)}))
    assert [node.op_type for node in opened.graph.node] == ["Relu"]


# Refusals ---------------------------------------------------------------------------------------------------

REFUSED = {
    "which tensor a run takes of several shapes": (
        """g (float[2,7,3] x, int64 p) => (float y) <int64 k = {3}, int64 one = {1}> {
            s = SplitToSequence<axis = 1>(x, k)  q = Add(p, one)  t = SequenceAt(s, q)
            y = ReduceMax<keepdims = 0>(t)
        }""",
        r"SequenceAt .* they differ in shape: \[2, 1, 3\] and \[2, 3, 3\]",
        "--const p=0",
    ),
    "sizes of parts that a run decides": (
        """g (float[2,7,3] x, int64 k) => (float y) <int64 one = {1}> {
            s = SplitToSequence<axis = 1>(x, k)  t = SequenceAt(s, one)  y = ReduceMax<keepdims = 0>(t)
        }""",
        "SplitToSequence .* 'k', is known at run time only",
        "--const k=1",
    ),
    "a position that no run could take": (
        """g (float[2,7,3] x) => (float y) <int64 k = {3}, int64 three = {3}> {
            s = SplitToSequence<axis = 1>(x, k)  t = SequenceAt(s, three)  y = ReduceMax<keepdims = 0>(t)
        }""",
        "position 3 is outside of its list of 3 tensors",
        "Export the model again",
    ),
    "branches that give lists of different lengths": (
        """g (float[2,3] x, bool c) => (float[2,3] y) <int64 z = {0}> {
            s = If(c) <then_branch = t () => (seq(float[2,3]) ts) { ts = SequenceConstruct(x, x) },
                else_branch = e () => (seq(float[2,3]) es) { es = SequenceConstruct(x) }>
            y = SequenceAt(s, z)
        }""",
        "The If .* a list of 2 tensors and as a list of 1 tensor",
        "a known number of tensors",
    ),
    "a list as long as a loop makes trips that a run decides": (
        """g (float[2,3] x, int64 n) => (float[2,3] y) <bool yes = {1}, int64 z = {0}> {
            e = SequenceEmpty()
            s = Loop(n, yes, e) <body = b (int64 i, bool go, seq(float[]) l) => (bool on, seq(float[]) l2) {
                on = Identity(go)  c = Sin(x)  l2 = SequenceInsert(l, c)
            }>
            y = SequenceAt(s, z)
        }""",
        "The Loop .* how many trips it makes, and so the length of the list 'l'",
        "--const n=1",
    ),
    "nothing joined": (
        "g (float[3] x) => (float[3] y) "
        "{ s = SequenceEmpty()  a = ConcatFromSequence<axis = 0>(s)  y = Add(x, a) }",
        "joins a list without tensors",
        "Export the model again",
    ),
    "an optional value that is not there": (
        "g (float[3] x) => (float[3] y) "
        "{ a = Optional<type = float[3]>()  b = OptionalGetElement(a)  y = Add(x, b) }",
        "the optional value 'a' has none",
        "Export the model again",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_with_what_to_do(name: str) -> None:
    graph, message, hint = REFUSED[name]
    with pytest.raises(ModelError, match=message) as caught:
        normal(parsed(graph))
    assert hint in caught.value.hint
    assert caught.value.refused


def test_a_list_of_more_tensors_than_nodes_are_allowed_is_refused() -> None:
    graph = "g (float[3000] x) => (int64 y) { s = SplitToSequence(x)  y = SequenceLength(s) }"
    assert operators(parsed(graph)) == {}
    with pytest.raises(ModelError, match="3000 tensors; 1000 are allowed") as caught:
        normalise(parsed(graph), Limits(nodes=1000))
    assert "--max-nodes" in caught.value.hint


def test_inspect_does_not_say_that_lists_cannot_be_compiled(tmp_path: Path) -> None:
    assert summarise(saved(tmp_path, PARTS["unbound"][0])).unsupported == {}


# Drawn ------------------------------------------------------------------------------------------------------


def check_drawn(seed: int) -> None:
    drawn = DrawnLists(seed)
    run = with_standard_regions(normal(drawn.model))
    for number in range(3):
        inputs = drawn.inputs(number)
        assert_same(run_onnxruntime(run, inputs), run_onnxruntime(drawn.model, inputs))


@pytest.mark.parametrize("seed", range(4))
def test_drawn_programs_of_lists(seed: int) -> None:
    check_drawn(seed)


def test_a_loop_inside_another_reads_the_list_that_the_outer_one_carries() -> None:
    """Of which the inner one chooses a tensor by its counter, and both stay loops."""
    graph = """g (float[3] x, float[3] z) => (float[3] y, float[3] w)
    <bool yes = {1}, int64 n = {90}, int64 two = {2}, int64 zero = {0}> {
        s = SequenceConstruct(x, z)
        r = Loop(n, yes, s) <body = b (int64 i, bool go, seq(float[]) l) => (bool on, seq(float[]) l2) {
            on = Identity(go)  a = SequenceAt(l, zero)
            c = Loop(two, yes, a) <body = d (int64 j, bool go2, float[] h) => (bool on2, float[] h2) {
                on2 = Identity(go2)  e = SequenceAt(l, j)  f = Sub(h, e)  h2 = Sin(f)
            }>
            k = SequenceErase(l, zero)  l2 = SequenceInsert(k, c)
        }>
        y = SequenceAt(r, zero)  last = SequenceErase(r, zero)  w = ConcatFromSequence<axis = 0>(last)
    }"""
    checked(parsed(graph), by_the_standard=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_drawn_programs_of_lists(part: int) -> None:
    """20 s each."""
    for seed in range(100 * part, 100 * part + 100):
        check_drawn(seed)


@pytest.mark.slow
def test_drawn_programs_of_lists_are_compiled(tmp_path: Path) -> None:
    drawn = {f"seed {seed}": DrawnLists(seed) for seed in range(3000, 3040)}
    compiled = Compiled({name: one.model for name, one in drawn.items()}, tmp_path)
    for name, one in drawn.items():
        for number in range(3):
            inputs = one.inputs(number)
            got = compiled.run(name, inputs, seed=number)
            assert_close(one.model, got, compiled.expected(name, inputs))
