"""What every template about a model may use: its names, tensors and sizes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from math import prod

from edgepack.plan.dtypes import C_TYPES, DTYPE_BYTES
from edgepack.plan.types import Plan, TensorSpec
from edgepack.render.formatting import float32_text
from edgepack.render.names import (
    c_identifier,
    c_string,
    direct_symbol,
    model_symbol,
    printable,
    unique_identifiers,
)
from edgepack.render.params_file import SIGNATURE_BYTES, params_file_bytes
from edgepack.version import __version__

__all__ = ["model_values"]


@dataclass(frozen=True)
class _Tensor:
    """An input or output of the model under the names that templates use.

    Attributes:
        role: "input" or "output".
        index: its number among those of its role.
        macro: what its macros begin with: ``RESNET18_INPUT_DATA``.
        variable: its name as a C identifier, unique among all inputs and outputs: ``data``.
    """

    spec: TensorSpec
    role: str
    index: int
    macro: str
    variable: str

    @property
    def list(self) -> str:
        return self.role + "s"

    @property
    def label(self) -> str:
        return f"{self.role}{self.index}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def shape_text(self) -> str:
        return "".join(f"[{extent}]" for extent in self.spec.shape)

    @property
    def elements(self) -> int:
        return prod(self.spec.shape)

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes

    @property
    def dtype(self) -> str:
        return f"EP_{self.spec.dtype.upper()}"

    @property
    def dtype_text(self) -> str:
        return self.spec.dtype

    @property
    def c_type(self) -> str:
        return C_TYPES[self.spec.dtype]

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.spec.dtype]

    @property
    def quantised(self) -> bool:
        return self.spec.quantisation is not None

    @property
    def scale(self) -> str:
        """As a literal of C, which is this float32 again; "" where its integers have none."""
        meaning = self.spec.quantisation
        text = "" if meaning is None else float32_text(meaning.scale)
        return f"{text}{'' if '.' in text or 'e' in text else '.0'}f" if text else ""

    @property
    def zero_point(self) -> int:
        meaning = self.spec.quantisation
        return 0 if meaning is None else meaning.zero_point

    @property
    def quoted(self) -> str:
        return c_string(self.spec.name)

    @property
    def printable(self) -> str:
        return printable(self.spec.name)


def model_values(plan: Plan, embedded: bool, *, direct: bool = False) -> dict[str, object]:
    """What the templates about a model name: its names as C and macros, its tensors, sizes in bytes.

    Args:
        embedded: the params are in the library.
        direct: it has a function that runs it without a session, which takes an opened model where the params
            are not in it.
    """
    identifier = c_identifier(plan.name)
    tensors = _tensors(plan, identifier, {"model"} if direct and not embedded else set())
    return {
        "name": plan.name,
        "version": __version__,
        "identifier": identifier,
        "macro": identifier.upper(),
        "symbol": model_symbol(plan.name),
        "direct_symbol": direct_symbol(plan.name),
        "quoted_name": c_string(plan.name),
        "quoted_version": c_string(__version__),
        "quoted_params_file": c_string(f"{plan.name}.params"),
        "tensors": tensors,
        "input_count": len(plan.inputs),
        "output_count": len(plan.outputs),
        "params_bytes": plan.params_bytes,
        "image_bytes": params_file_bytes(plan),
        "place_bytes": params_file_bytes(plan, listed=False) + SIGNATURE_BYTES,
        "embedded": embedded,
    }


def _tensors(plan: Plan, identifier: str, others: Set[str]) -> list[_Tensor]:
    """Inputs, then outputs, with names that are unique among all of them and ``others``."""
    specs = [("input", i, t) for i, t in enumerate(plan.inputs)] + [
        ("output", i, t) for i, t in enumerate(plan.outputs)
    ]
    taken = {identifier, "session", "inputs_", "outputs_", "memory", "memory_bytes", *others}
    variables = unique_identifiers([t.name for _, _, t in specs], taken=taken)
    macros = [
        name
        for role in (plan.inputs, plan.outputs)
        for name in unique_identifiers([t.name for t in role], upper=True, keywords=False)
    ]
    return [
        _Tensor(spec, role, index, f"{identifier.upper()}_{role.upper()}_{macro}", variable)
        for (role, index, spec), macro, variable in zip(specs, macros, variables, strict=True)
    ]
