"""The text of one GPU kernel while it is written: lines of C, and what the kernel's parameters are.

All back ends get the same text. What OpenCL C, CUDA C and the Metal language call differently (address
spaces, thread numbers, barriers, int64, float16 in memory) are macros, which the back end defines in front of
the kernels (``compiler/backends/opencl.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage

__all__ = ["SYMBOL", "Code", "c_type", "storage_type"]

#: What stands for the kernel's name in its text until symbols are given out: equal kernels have equal texts.
SYMBOL = "@symbol@"

#: Groups along y and z at most: CUDA's limit.
MOST_GROUPS = 65535

_C_TYPES = {
    "float32": "float",
    "int32": "int",
    "int64": "ep_int64",
    "uint32": "uint",
    "uint64": "ep_uint64",
    "int16": "short",
    "uint16": "ushort",
    "int8": "ep_int8",
    "uint8": "uchar",
    "bool": "int",
    # Computed in float32; in memory it is ep_half.
    "float16": "float",
}


def c_type(dtype: str) -> str:
    """The C type that a value of ``dtype`` is computed in. RuleError for one that not every GPU computes
    with."""
    if dtype not in _C_TYPES:
        raise RuleError(f"{dtype} is not computed on every GPU")
    return _C_TYPES[dtype]


def storage_type(dtype: str) -> str:
    """The C type of an element in memory: a bool is a byte."""
    return {"bool": "uchar", "float16": "ep_half"}.get(dtype) or c_type(dtype)


class Code:
    """Lines of a kernel, and its parameters in the order of their first use.

    Args:
        most_parameters: pointers that a kernel can have on the GPU that it is for.

    Attributes:
        in_simdgroups: whether its text asks which SIMD-group a thread is of (``SIMDGROUP``).
    """

    def __init__(self, most_parameters: int) -> None:
        self.most_parameters = most_parameters
        self.lines: list[str] = []
        self.parameters: dict[Operand, tuple[str, str, bool]] = {}
        self.in_simdgroups = False
        self._depth = 1
        self._names = 0

    def name(self, prefix: str) -> str:
        """A name that nothing else in the kernel has."""
        self._names += 1
        return f"{prefix}{self._names}"

    def line(self, text: str) -> None:
        """Appends a statement."""
        self.lines.append("  " * self._depth + text)

    def let(self, ctype: str, text: str, prefix: str = "v") -> str:
        """Binds an expression to a new constant; a name or a number stays as it is."""
        if text.isidentifier() or text.isdigit():
            return text
        name = self.name(prefix)
        self.line(f"const {ctype} {name} = {text};")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands between braces behind ``head``."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def parameter(self, operand: Operand, dtype: str, *, written: bool = False) -> str:
        """The name of the pointer to a tensor in the GPU's memory, of elements of ``dtype``."""
        if operand not in self.parameters:
            name = f"p{len(self.parameters)}"
            self.parameters[operand] = (name, storage_type(dtype), written)
        name, ctype, before = self.parameters[operand]
        self.parameters[operand] = (name, ctype, before or written)
        return name

    def stage(
        self, groups: tuple[int, int, int], threads: tuple[int, int, int], *, local_bytes: int = 0
    ) -> GpuStage:
        """Ends the kernel.

        Args:
            groups: work groups in x, y and z, and ``threads`` work items of each.
            local_bytes: memory that the work items of a group share.

        Raises:
            RuleError: for more groups, or more tensors, than the GPU can have in a launch.
        """
        declared = ", ".join(
            f"GLOBAL {'' if written else 'const '}{ctype} *RESTRICT {name} BUFFER({number})"
            for number, (name, ctype, written) in enumerate(self.parameters.values())
        )
        if max(groups[1:]) > MOST_GROUPS or len(self.parameters) > self.most_parameters:
            raise RuleError("more groups or tensors than the GPU takes")
        size = ", ".join(str(n) for n in threads)
        positions = "SIMDGROUPS POSITIONS" if self.in_simdgroups else "POSITIONS"
        head = f"KERNEL({size}) void {SYMBOL}({declared} {positions}) {{"
        text = "\n".join([head, *self.lines, "}", ""])
        return GpuStage(text, tuple(self.parameters), groups, threads, local_bytes)
