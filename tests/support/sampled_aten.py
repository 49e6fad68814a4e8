"""Compares PyTorch's operators with what PyTorch computes, on the samples of its own operator database.

    PYTHONPATH=build/torch python -m tests.support.sampled_aten [--part 0 --of 8] [OPERATOR ...]

Each sample becomes a module, an exported program, an ONNX model, and kernels that run here. A line is printed
for each that is refused, that ends with another error, and whose results differ; then counts. PyTorch's
database needs ``expecttest`` (``pip install expecttest``). All operators take an hour and a half of one core.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.compiler.frontend.torch.to_onnx import export
from edgepack.errors import EdgepackError
from edgepack.programs.exporting import exported_program
from edgepack.programs.flat import flattened
from workbench.compiled import Compiled, plan_of

#: Parts of names of operators that draw random numbers, are of linear algebra or signals, or whose results'
#: sizes or values are not defined by their operands.
LEFT_OUT = (
    *(
        "__getitem__",
        "_batch_norm",
        "_native",
        "_refs",
        "_segment",
        "allclose",
        "as_strided",
        "bernoulli",
        "cauchy",
    ),
    *(
        "cdist",
        "cholesky",
        "complex",
        "ctc",
        "dropout",
        "eig",
        "empty",
        "equal",
        "exponential",
        "fft.",
        "geometric",
    ),
    *(
        "geqrf",
        "histogram",
        "istft",
        "item",
        "jiterator",
        "linalg.",
        "log_normal",
        "lstsq",
        "lu",
        "masked.",
        "mode",
    ),
    *(
        "multinomial",
        "nn.functional.scaled",
        "nonzero",
        "normal",
        "nuc",
        "ormqr",
        "pinverse",
        "polar",
        "qr",
        "rand",
    ),
    *("resize_", "segment", "signal.", "sparse", "special.", "stft", "svd", "symeig", "tolist", "triangular"),
    *("uniform", "unique", "view_as_complex"),
)

#: Samples of an operator and type that are tried, out of the first of the database.
TRIED, LISTED = 3, 40


class Sample(NamedTuple):
    """A call of an operator.

    Attributes:
        name: of the operator, its type, and a number.
        leaves: its arguments in a row, tensors among them, and ``spec`` how they belong together.
        wanted: the tensors that PyTorch returns.
    """

    name: str
    module: nn.Module
    tensors: tuple[torch.Tensor, ...]
    wanted: list[torch.Tensor]
    shown: str


class Call(nn.Module):
    """A call whose tensors are arguments, and whose other arguments are constants."""

    def __init__(self, operator: Any, arguments: Any) -> None:
        super().__init__()
        self.operator = operator
        self.leaves, self.spec = pytree.tree_flatten(arguments)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        arguments, keywords = pytree.tree_unflatten(leaves, self.spec)
        found = self.operator(*arguments, **keywords)
        return tuple(leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor))


def samples(operator: Any) -> Iterator[Sample]:
    """Some calls of the database with real, dense tensors."""
    for dtype in (torch.float32, torch.int64):
        listed = (
            list(itertools.islice(operator.sample_inputs("cpu", dtype), LISTED))
            if dtype in operator.dtypes
            else []
        )
        for number, one in enumerate(listed[:: max(1, len(listed) // TRIED)][:TRIED]):
            module = Call(operator.op, ((one.input, *one.args), one.kwargs))
            module.leaves = [
                leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in module.leaves
            ]
            tensors = tuple(leaf for leaf in module.leaves if isinstance(leaf, torch.Tensor))
            with torch.no_grad():
                wanted = [found.clone() for found in module(*(tensor.clone() for tensor in tensors))]
            if tensors and wanted and not any(t.is_complex() or t.is_sparse for t in (*tensors, *wanted)):
                shown = str([tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in module.leaves])[
                    :150
                ]
                yield Sample(f"{operator.name}/{dtype}/{number}", module, tensors, wanted, shown)


def _difference(found: Sequence[np.ndarray], wanted: Sequence[torch.Tensor]) -> str:
    """What is not the same, within rounding; "" if all is."""
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for got, tensor in zip(found, wanted, strict=True):
        other = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
        if got.shape != other.shape or (got.dtype != other.dtype and tensor.dtype is not torch.bfloat16):
            return f"{got.dtype}{got.shape}, not {other.dtype}{other.shape}"
        largest = np.abs(other[np.isfinite(other)]).max(initial=1)
        close = np.isclose(got, other, rtol=1e-3, atol=1e-4 * largest, equal_nan=True)
        if not close.all():
            return f"{got[~close][:4].tolist()}, not {other[~close][:4].tolist()}"
    return ""


def _compared(operator: Any, folder: Path) -> Iterator[tuple[str, Sample, str]]:
    """What became of each sample of an operator, in a word and a text."""
    known: dict[str, tuple[Sample, list[str]]] = {}
    models: dict[str, onnx.ModelProto] = {}
    for number, sample in enumerate(samples(operator)):
        place = folder / str(number)
        place.mkdir()
        try:
            made = export(flattened(exported_program(sample.module, sample.tensors), "m"), place, "m")
            model = onnx.load(str(made.path))
            with attributed_errors(made.path):
                plan_of(model)
        except EdgepackError as error:
            yield "refused" if error.exit_code == 3 else "wrong", sample, f"{error.message} {error.detail}"
        except Exception as error:  # it would end a command
            yield "wrong", sample, repr(error)
        else:
            known[sample.name], models[sample.name] = (sample, list(made.inputs)), model
    compiled = Compiled(models, folder / "library") if models else None
    for name, (sample, names) in known.items():
        read = {value.name for value in models[name].graph.input}
        pairs = zip(names, sample.tensors, strict=True)
        assert compiled is not None
        found = compiled.run(name, {n: t.numpy() for n, t in pairs if n in read}, poison=0x7B)
        different = _difference(list(found.values()), sample.wanted)
        yield "wrong" if different else "right", sample, different


def main() -> None:
    """Compares all, or a part."""
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("operators", nargs="*")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    wanted = [
        one
        for one in op_db
        if (
            one.name in given.operators if given.operators else not any(part in one.name for part in LEFT_OUT)
        )
    ]
    counts: Counter[str] = Counter()
    for operator in wanted[given.part :: given.of]:
        with tempfile.TemporaryDirectory() as folder:
            for what, sample, text in _compared(operator, Path(folder)):
                counts[what] += 1
                if what != "right":
                    print(f"{what} {sample.name} {sample.shown}: {' '.join(text.split())[:240]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
