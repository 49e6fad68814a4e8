"""What a TFLite file says, checked: tensors, operators and subgraphs as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgepack.plan.types import LinearQuantisation

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LEFT_OUT", "Model", "Operator", "Quantisation", "Subgraph", "Tensor"]

#: Index of an operator's input that is left out.
LEFT_OUT = -1


@dataclass(frozen=True)
class Quantisation:
    """What a tensor's integers mean: ``(x - zero) * scale``.

    Attributes:
        scale: float32, of one element, or one for each place of ``axis``.
        zero: int64, zero points, as many.
        axis: the dimension along which they lie.
    """

    scale: NDArray[Any]
    zero: NDArray[Any]
    axis: int = 0

    @property
    def single(self) -> bool:
        """Whether there is one scale for all."""
        return bool(self.scale.size == 1)


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph.

    Attributes:
        index: in its subgraph.
        name: unique in its subgraph, and not empty.
        dtype: a name of :data:`edgepack.plan.dtypes.DTYPES`, or another one, in lower case, of a type that
            edgepack does not have (``string``, ``resource``, ``int4``).
        shape: with sizes that the file leaves open as 1.
        open_axes: the axes of these.
        quantisation: what its integers mean; None where they are numbers.
        data: of a constant; None of what is computed.
        variable: whether it keeps what an operator leaves in it for the next run.
        in_blocks: whether its integers are quantised in another way than ``quantisation`` can say (in blocks
            of an axis, along several axes, in one of its own).
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    open_axes: tuple[int, ...] = ()
    quantisation: Quantisation | None = None
    data: NDArray[Any] | None = None
    variable: bool = False
    in_blocks: bool = False

    @property
    def linear_quantisation(self) -> LinearQuantisation | None:
        """What all its integers mean; None for floats, and where there are several scales."""
        given = self.quantisation
        if given is None or not given.single or "int" not in self.dtype:
            return None
        return LinearQuantisation(float(given.scale[0]), int(given.zero[0]))


@dataclass(frozen=True)
class Operator:
    """An operator of a subgraph.

    Attributes:
        index: in its subgraph.
        kind: as the schema calls it (``CONV_2D``), or a custom operator's own name.
        version: of the operator.
        inputs, outputs: indices of tensors; ``LEFT_OUT`` for an input that is not given.
        options: the operator's attributes by the schema's names (``strideW``).
        custom: whether the schema does not know it.
        intermediates: indices of tensors that only say what integers within the operator mean.
        graphs: of control flow that stays (``branches.py``): the branches of an ``IF``, or the body of a
            ``WHILE``.
    """

    index: int
    kind: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: bool = False
    intermediates: tuple[int, ...] = ()
    graphs: tuple[Subgraph, ...] = ()


@dataclass(frozen=True)
class Subgraph:
    """Tensors, and the operators that compute them in order.

    Attributes:
        inputs, outputs: indices of tensors.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def all_operators(self) -> Iterator[tuple[Subgraph, Operator]]:
        """Its operators and those of the graphs inside them, each with the graph whose tensors it names."""
        for operator in self.operators:
            yield self, operator
            for graph in operator.graphs:
                yield from graph.all_operators()


@dataclass(frozen=True)
class Model:
    """A model's subgraphs, the first of which is run.

    Attributes:
        description: as the converter wrote it.
        tables: what it was read of, checked (``ModelT``): LiteRT is given a file that is written of it.
    """

    subgraphs: tuple[Subgraph, ...]
    description: str = ""
    tables: Any = None

    @property
    def main(self) -> Subgraph:
        """The subgraph that is run."""
        return self.subgraphs[0]
