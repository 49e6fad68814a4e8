"""One operator at a time, at sizes that networks have: what benchmarks/operators.py measures.

:data:`ROWS` are the models by name, :data:`NOT_MEASURED` the operators that have none, with the reason.
"""

from workbench.models.realistic import arithmetic, layers, moves, reductions, sampling
from workbench.models.realistic.row import NOT_MEASURED, ROWS, Row

__all__ = ["NOT_MEASURED", "ROWS", "Row", "arithmetic", "layers", "moves", "reductions", "sampling"]
