"""Results of ONNX Runtime's own quantised operators have the types that ONNX Runtime gives them."""

from __future__ import annotations

import pytest

from edgepack.compiler.frontend.onnx.contributed_types import declare_contributed
from workbench.models.quantised import MS, QUANTISED

CONTRIBUTED = [name for name, make in QUANTISED.items() if make().graph.node[0].domain == MS]


@pytest.mark.parametrize("name", CONTRIBUTED)
def test_first_result_has_its_type(name: str) -> None:
    model = QUANTISED[name]()
    kind = model.graph.output[0].type.tensor_type
    wanted, kind.elem_type = kind.elem_type, 0
    declare_contributed(model.graph)
    assert model.graph.output[0].type.tensor_type.elem_type == wanted
