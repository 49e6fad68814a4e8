"""Small models around one operator each: ``CASES[name]()`` gives a seeded model with static shapes."""

from __future__ import annotations

from workbench.models.operators import elementwise, layers, moves, products, quantised, reductions, resizes
from workbench.models.operators.case import CASES

__all__ = ["CASES", "elementwise", "layers", "moves", "products", "quantised", "reductions", "resizes"]
