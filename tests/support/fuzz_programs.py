"""Feeds damaged ``.pt2`` files to the frontend for PyTorch: a case is a number, from which all follows.

``PYTHONPATH=build/torch python -m tests.support.fuzz_programs --first 0 --count 20000`` prints the cases that
end otherwise than with exit code 0 or 3; ``--case 4711`` runs one, and leaves its file in the working folder.
What the schema refuses takes milliseconds; where PyTorch is, it reads the others, and exports each eighth.

Cases run in forked children, some tens in each, which may take 3 GB and 120 s a case.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from edgepack.compiler.frontend.torch import frontend
from edgepack.compiler.frontend.torch.archive import check_archive, load_program
from edgepack.errors import EdgepackError
from tests.support.forked_cases import Limits, Outcome, main_of, run_forked
from tests.support.mutate_program import write_case

__all__ = ["run_cases"]

#: PyTorch takes more than other readers.
LIMITS = Limits(3 << 30, 120.0)
#: Every so many cases a program that PyTorch reads is exported too.
_EXPORTED = 8


def _run(case: int, *, with_torch: bool) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_case(case, folder)
        try:
            if not with_torch:
                check_archive(model, folder / "copy.pt2")
            elif case % _EXPORTED:
                load_program(model, folder)
            else:
                frontend.summarise(model)
        except EdgepackError as error:
            return error.exit_code, error.message
    return 0, ""


def run_cases(cases: Sequence[int], *, with_torch: bool = False) -> Iterator[Outcome]:
    """How each case ends, in order.

    Args:
        with_torch: what the schema lets through is read by PyTorch.
    """
    if with_torch:
        import torch._dynamo
        import torch.onnx  # noqa: F401 (a fork has them at once)
    return run_forked(cases, partial(_run, with_torch=with_torch), LIMITS)


def main() -> int:
    """See above."""
    with_torch = importlib.util.find_spec("torch") is not None
    run_cases((), with_torch=with_torch)  # which imports it
    return main_of(partial(_run, with_torch=with_torch), write_case, LIMITS)


if __name__ == "__main__":
    sys.exit(main())
