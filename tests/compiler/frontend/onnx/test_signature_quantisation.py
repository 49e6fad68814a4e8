"""What the integers of inputs and outputs of ONNX models mean, as far as their operators say it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from edgepack.compiler.frontend import onnx as frontend
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.signature_quantisation import signature_quantisation
from edgepack.plan.types import LinearQuantisation

NINTH = float(np.float32(1 / 9))


def model(body: str, signature: str = "int8[1,4] x) => (int8[1,4] y") -> onnx.ModelProto:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> graph ({signature})
        <float a = {{{1 / 9}}}, float b = {{0.5}}, float[2] two = {{0.5, 0.25}}, int8 m = {{-7}},
         int8 z = {{0}}, int8[1,4] w = {{1, 2, 3, 4}}> {{ {body} }}"""
    return onnx.parser.parse_model(text)


def test_of_an_input_and_an_output_it_is_their_operators() -> None:
    body = "f = DequantizeLinear(x, a, m)  r = Relu(f)  y = QuantizeLinear(r, b, z)"
    assert signature_quantisation(model(body)) == {
        "x": LinearQuantisation(NINTH, -7),
        "y": LinearQuantisation(0.5, 0),
    }
    added = signature_quantisation(model("y = com.microsoft.QLinearAdd(x, a, m, w, b, z, b)"))
    assert added == {"x": LinearQuantisation(NINTH, -7), "y": LinearQuantisation(0.5, 0)}


def test_it_is_unknown_where_readers_differ_or_the_scale_is_none_of_the_file() -> None:
    once = "f = DequantizeLinear(x, a, m)"
    assert not signature_quantisation(
        model(f"{once} g = DequantizeLinear(x, b, m) h = Add(f, g) y = Cast<to=3>(h)")
    )
    assert not signature_quantisation(model(f"{once} g = Cast<to=1>(x) h = Add(f, g) y = Cast<to=3>(h)"))
    signature = "int8[1,4] x, float s) => (int8[1,4] y"
    assert not signature_quantisation(
        model("f = DequantizeLinear(x, s, m) y = QuantizeLinear(f, s, m)", signature)
    )
    axis = "f = DequantizeLinear<axis=0>(x, two) y = Cast<to=3>(f)"
    assert not signature_quantisation(model(axis, "int8[2] x) => (int8[2] y"))
    branches = ", ".join(
        f"{name}_branch = {name} () => (int8[1,4] {name}_x) {{ {name}_x = Identity(x) }}"
        for name in ("then", "else")
    )
    inside = f"c = Constant<value = bool {{1}}>() y = If <{branches}> (c)"
    assert not signature_quantisation(model(f"{once} {inside}"))


def test_the_imported_signature_has_it(tmp_path: Path) -> None:
    """Floats have none, though DequantizeLinear makes them."""
    body = "f = DequantizeLinear(x, a, m)  y = QuantizeLinear(f, b, z)"
    path = tmp_path / "quantised.onnx"
    onnx.save(model(body, "int8[1,4] x) => (int8[1,4] y, float[1,4] f"), str(path))
    frontend.prepare(path, ImportOptions(), tmp_path)
    signature = frontend.load(tmp_path).signature
    assert [one.quantisation for one in (*signature.inputs, *signature.outputs)] == [
        LinearQuantisation(NINTH, -7),
        LinearQuantisation(0.5, 0),
        None,
    ]
    summary = frontend.summarise(path)
    assert [one.quantisation for one in summary.outputs] == [LinearQuantisation(0.5, 0), None]
