"""Whether lowered functions fit what calls them: a result of another type or shape would be written beyond
its tensor, or leave a part of it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tvm import relax
from tvm.ir import IRModule, Op
from tvm.tirx import PrimFunc

from edgepack.compiler.graph.rewrite import op_name
from edgepack.errors import EdgepackError, InternalError

__all__ = ["Legalize", "check_calls", "legalised"]

#: TVM's type of an operator's legalisation.
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

#: Shape and element type of a tensor.
_Tensor = tuple[tuple[int, ...], str]


def legalised(module: IRModule, custom: Mapping[str, Legalize], kept: Iterable[str]) -> IRModule:
    """The module after TVM's pass, by legalisations of ours and, for other operators, TVM's own.

    Args:
        custom: legalisations by operator.
        kept: operators that stay.

    Raises:
        InternalError: a legalisation's result has not the types and shapes of the operator's.
        EdgepackError: of a legalisation.
    """
    failures: list[EdgepackError] = []
    made = {name: _checked(name, custom.get(name), failures) for name in _operators(module)}
    known = {name: legalise for name, legalise in made.items() if legalise is not None}
    try:
        return relax.transform.LegalizeOps(known, skip_ops=sorted(kept))(module)
    except Exception:
        if failures:  # of which TVM makes an error of its own
            raise failures[0] from None
        raise


def _operators(module: IRModule) -> list[str]:
    """Names of the operators that a module calls, each once."""
    calls = (
        op_name(binding.value)
        for function in module.functions.values()
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for binding in block.bindings
    )
    return sorted({name for name in calls if name})


def _checked(name: str, custom: Legalize | None, failures: list[EdgepackError]) -> Legalize | None:
    """A legalisation of an operator, TVM's own if none is given, that fails where its result has not the
    types and shapes of the call; None if there is none.

    Args:
        failures: what is raised is added.
    """
    legalise = custom or Op.get(name).get_attr("FLegalize")
    if legalise is None:
        return None

    def convert(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        try:
            result = builder.normalize(legalise(builder, call))
            wanted, found = _tensors(call.ty), _tensors(result.ty)
            if wanted != found:
                raise InternalError(
                    f"The legalisation of {name} gives {_text(found)} instead of {_text(wanted)}.",
                    hint="Report the model: this is a defect of edgepack.",
                )
        except EdgepackError as error:
            failures.append(error)
            raise
        return result

    return convert


def check_calls(module: IRModule) -> None:
    """Raises InternalError for a call of a function whose buffers are not what the call hands over."""
    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                if op_name(binding.value) == "relax.call_tir":
                    _check(module, binding)


def _check(module: IRModule, binding: Any) -> None:
    gvar, operands = binding.value.args[0], binding.value.args[1]
    callee = module[gvar]
    if not isinstance(callee, PrimFunc):
        return
    given = [*(one for x in operands.fields for one in _tensors(x.ty)), *_tensors(binding.var.ty)]
    taken = [(tuple(int(n) for n in buffer.shape), str(buffer.dtype)) for buffer in callee.params]
    if given != taken:
        raise InternalError(
            f"The function {gvar.name_hint} takes {_text(taken)}, and is given {_text(given)}.",
            hint="Report the model: this is a defect of edgepack.",
        )


def _tensors(ty: Any) -> list[_Tensor]:
    """Those of a tensor's type, or of a tuple's."""
    if isinstance(ty, relax.TupleType):
        return [one for part in ty.fields for one in _tensors(part)]
    if not isinstance(ty, relax.TensorType):
        return []
    return [(tuple(int(n) for n in ty.shape.values), str(ty.dtype))]


def _text(tensors: list[_Tensor]) -> str:
    return ", ".join(f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in tensors) or "nothing"
