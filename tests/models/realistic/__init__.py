"""One operator at a time, at sizes that networks have: what benchmarks/operators.py measures.

:data:`ROWS` are the models by name, :data:`NOT_MEASURED` the operators that have none, with the reason.
"""

from tests.models.realistic import arithmetic, layers, moves, reductions, sampling
from tests.models.realistic.row import NOT_MEASURED, ROWS, Row

__all__ = ["NOT_MEASURED", "ROWS", "Row", "arithmetic", "layers", "moves", "reductions", "sampling"]
