"""The micro-kernels that there are, and the one that a product is computed by.

They are found by looking into every module of this package, as rules are; nothing else has to be edited to
add one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from inspect import isabstract, isclass
from itertools import pairwise

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu import micro
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.rule import OTHER_DTYPE
from edgepack.plan.target import CpuTarget

__all__ = ["micro_kernel_for", "micro_kernels"]


@cache
def micro_kernels() -> tuple[type[MicroKernel], ...]:
    """The micro-kernels in the modules of this package, in the order in which they are tried.

    Raises:
        ValueError: if two have the same order.
    """
    found: dict[str, type[MicroKernel]] = {}
    for info in pkgutil.iter_modules(micro.__path__, f"{micro.__name__}."):
        for value in vars(importlib.import_module(info.name)).values():
            if isclass(value) and issubclass(value, MicroKernel) and not isabstract(value):
                found[value.__name__] = value
    ordered = sorted(found.values(), key=lambda kind: kind.order)
    for first, second in pairwise(ordered):
        if first.order == second.order:
            raise ValueError(f"{first.__name__} and {second.__name__} have the same order ({first.order})")
    return tuple(ordered)


def micro_kernel_for(
    products: Iterable[ProductTypes],
    sizes: tuple[int, int],
    target: CpuTarget,
    *,
    constant: bool,
    unit: str | None = None,
) -> MicroKernel:
    """The first micro-kernel of registers that every kernel has, that serves the first of these products that
    any serves.

    Args:
        products: types by which it may be computed, the preferred ones first.
        sizes: elements of the reduction that are neighbours in memory, and columns, see
            :meth:`MicroKernel.suits`.
        constant: whether the right operand is.
        unit: the element type that its units must have, if not any will do.

    Raises:
        RuleError: none serves any of them.
    """
    products = tuple(products)
    for types in products:
        for kind in micro_kernels():
            made = None if kind.matrix else kind.of(types, target)
            if made is None or unit not in {None, made.left_unit}:
                continue
            if made.suits(*sizes) and (constant or not made.packs):
                return made
    raise RuleError(f"{OTHER_DTYPE}{products[-1]}")
