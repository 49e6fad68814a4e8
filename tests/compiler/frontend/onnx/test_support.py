from __future__ import annotations

import onnx
import pytest

from edgepack.compiler.frontend.onnx import converters
from edgepack.compiler.frontend.onnx.function_bodies import has_function_body
from edgepack.compiler.frontend.onnx.rewrites import REWRITES
from edgepack.compiler.frontend.onnx.support import IMPORTABLE, REFUSED, SEQUENCES, unsupported_nodes
from workbench.models import NETWORKS, build


def test_importable_operators_are_those_that_tvm_converts() -> None:
    """The list is written down, so that `inspect` needs no TVM; a new TVM changes it."""
    from tvm.relax.frontend.onnx import onnx_frontend

    converted = {op for op in onnx_frontend._get_convert_map() if onnx.defs.has(op, "")}
    rewritten = {op for domain, op in REWRITES if domain == ""}
    assert converted | converters.OPERATORS >= IMPORTABLE
    forgotten = converted - IMPORTABLE - rewritten - REFUSED.keys()
    assert {op for op in forgotten if not has_function_body("", op)} <= SEQUENCES


def test_every_name_is_an_operator_of_onnx() -> None:
    assert [op for op in (*IMPORTABLE, *REFUSED, *SEQUENCES) if not onnx.defs.has(op, "")] == []


@pytest.mark.parametrize("name", [name for name in NETWORKS if not name.startswith("light")])
def test_no_network_of_the_tests_has_unsupported_nodes(name: str) -> None:
    assert unsupported_nodes(build(name), REWRITES) == {}
