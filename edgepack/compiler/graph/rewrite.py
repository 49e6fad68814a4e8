"""Rebuild a Relax function binding by binding: the frame that the passes of this package share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from tvm import relax
from tvm.ir import GenericConst, IRModule, Op

from edgepack.errors import ModelError

__all__ = [
    "Array",
    "OptionalExpr",
    "Rewriter",
    "constant",
    "dtype_of",
    "is_constant",
    "node_index",
    "numpy_of",
    "op_name",
    "readers",
    "shape_of",
]

Array: TypeAlias = np.ndarray[Any, Any]

#: A Relax expression or None, for what is first asked for the name of what it calls, which is "" for None;
#: the type checker cannot follow that.
OptionalExpr: TypeAlias = Any


#: Of constants that TVM and NumPy share.
_SHARED = {
    "float16",
    "float32",
    "float64",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
}


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """Static shape of a tensor expression."""
    return tuple(int(d) for d in expr.ty.shape)


def dtype_of(expr: relax.Expr) -> str:
    """Element type of a tensor expression, as numpy spells it."""
    return str(expr.ty.dtype)


def is_constant(expr: relax.Expr) -> bool:
    """Whether the expression is a tensor that is known now."""
    return isinstance(expr, GenericConst)


def numpy_of(expr: relax.Expr) -> Array:
    """The value of a constant: a view of TVM's memory, which is not to be written to, where NumPy knows the
    dtype; else a copy."""
    tensor = expr.value
    if str(tensor.dtype) not in _SHARED:
        return tensor.numpy()  # type: ignore[no-any-return]
    array: Array = np.from_dlpack(tensor)
    array.flags.writeable = False
    return array


def constant(array: Array) -> relax.Expr:
    """A Relax constant with this value (C order, same dtype and shape)."""
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), str(array.dtype))


def node_index(variable: relax.Var) -> int | None:
    """Index of the model's node whose value the variable is, as the frontend named it; None for others."""
    found = re.fullmatch(r"n(\d+)_\d*", variable.name)
    return int(found[1]) if found else None


def op_name(call: relax.Call) -> str:
    """Name of the Relax operator that is called (``relax.nn.conv2d``), or "" for any other call."""
    return str(call.op.name) if isinstance(call, relax.Call) and isinstance(call.op, Op) else ""


def _hint(name: str) -> str:
    """The name without what was added to tell it from others."""
    found = re.fullmatch(r"(n\d+_)\d*", name)
    return found[1] if found else name


def _named(bindings: Sequence[relax.Binding]) -> list[tuple[relax.Binding, str]]:
    """Each binding with its name. The frontend names a node's value; what it is made of stands before."""
    named: list[tuple[relax.Binding, str]] = []
    name = ""
    for binding in reversed(bindings):
        name = binding.var.name if node_index(binding.var) is not None or not name else name
        named.append((binding, name))
    return named[::-1]


def readers(module: IRModule) -> dict[relax.Expr, list[relax.Call | None]]:
    """What reads each variable; None stands for what is no call of an operator."""
    found: dict[relax.Expr, list[relax.Call | None]] = {}
    function = module["main"]
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value if isinstance(binding.value, relax.Call) else None
            for arg in [binding.value] if call is None else call.args:
                for variable in _variables(arg):
                    found.setdefault(variable, []).append(call)
    for variable in _variables(function.body.body):
        found.setdefault(variable, []).append(None)
    return found


def _variables(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Those of an operand: itself, or in a tuple."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _variables(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from _variables(expr.tuple_value)


class Rewriter:
    """Walks the one dataflow block of ``main`` and emits a new one.

    A pass overrides :meth:`visit_call`. ``self.env`` maps each old variable to its new expression
    (a subclass may keep something else with :meth:`bind`).
    """

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.builder = relax.BlockBuilder(module)
        self.env: dict[relax.Expr, Any] = {}
        self.name = ""

    def run(self) -> IRModule:
        """Returns the module with ``main`` rewritten."""
        function = self.module["main"]
        gvar = self.module.get_global_var("main")
        builder = self.builder
        params = [relax.Var(p.name, p.ty) for p in function.params]
        for old, new in zip(function.params, params, strict=True):
            self.bind(old, new)
        with builder.function("edgepack_main", params):
            with builder.dataflow():
                for block in function.body.blocks:
                    for binding, self.name in _named(block.bindings):
                        self.visit_binding(binding)
                returned = self.result(function.body.body)
                hint = _hint(returned.name) if isinstance(returned, relax.Var) else ""
                result = builder.emit_output(returned, name_hint=hint)
            builder.emit_func_output(result)
        rebuilt = builder.finalize()
        new_main = rebuilt["edgepack_main"].with_attr("global_symbol", "main")
        functions = {
            v: f for v, f in rebuilt.functions.items() if v.name_hint not in {"edgepack_main", "main"}
        }
        functions[gvar] = new_main
        return relax.transform.DeadCodeElimination(["main"])(IRModule(functions, attrs=rebuilt.attrs))

    def bind(self, old: relax.Expr, new: Any) -> None:
        """Records that ``old`` is now ``new``."""
        self.env[old] = new

    def result(self, expr: relax.Expr) -> relax.Expr:
        """The new expression of what the function returns."""
        return self.use(expr)

    def use(self, expr: relax.Expr) -> relax.Expr:
        """The new expression for an operand."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.use(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.use(expr.tuple_value), expr.index)
        return self.env.get(expr, expr)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Emits a binding; constants and variables are returned as they are.

        It is named as the binding that is being rewritten: ``n<index>_`` leads back to a node of the model.
        """
        if isinstance(expr, relax.Var | GenericConst):
            return expr
        return self.builder.emit(expr, name_hint=_hint(self.name))

    def isolated(self, value: relax.Expr) -> relax.Expr:
        """A tensor behind two reshapes that cancel each other: fusion ends at a reshape."""
        shape = shape_of(value)
        return self.emit(relax.op.reshape(self.emit(relax.op.reshape(value, (prod(shape),))), shape))

    def visit_binding(self, binding: relax.Binding) -> None:
        """One ``var = value`` of the function."""
        if not isinstance(binding, relax.VarBinding):
            raise ModelError(
                f"the shape of {binding.var.name!r} depends on the data, which a static plan cannot hold",
                hint="Export it without operators whose output shape depends on values (NonZero, NMS).",
            )
        value = binding.value
        if isinstance(value, relax.Call):
            new = self.visit_call(value, [self.use(arg) for arg in value.args])
            self.bind(binding.var, new)
        elif isinstance(value, relax.If):
            raise ModelError(
                "the model has control flow (If), which a static plan cannot hold",
                hint="Export the model with the branch taken, or fold the condition to a constant.",
            )
        else:
            self.bind(binding.var, self.emit(self.use(value)))

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        """The new expression for a call whose operands are now ``args``.

        Its type is not inferred again where those of its operands are the same: of a convolution that takes
        0.6 ms.
        """
        same = all(old.ty.same_as(new.ty) for old, new in zip(call.args, args, strict=True))
        known = call.ty if same else None
        return self.emit(relax.Call(call.op, list(args), call.attrs, call.ty_args, ret_ty=known))
