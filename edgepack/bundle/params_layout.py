"""What params must be like for a library to compute with them: their layout, apart from their content.

Two packs with the same layout have the same program: inputs, outputs, steps, machine code, and constants of
the same sizes at the same places. They differ in the constants' bytes alone, so that the params of one are
right for the library of the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgepack.plan.types import Plan, TensorSpec
from edgepack.system.files import sha256_file

__all__ = ["params_layout"]


def params_layout(plans: Sequence[Plan], code: Iterable[Path], texts: Iterable[bytes] = ()) -> bytes:
    """SHA-256 of all that a library is made of, but for the content of its params and the names of nodes.

    Args:
        plans: of its variants.
        code: the kernels' objects, and what else is compiled into it.
        texts: kernels that are no files.

    Returns:
        32 bytes.
    """
    described = {
        "plans": [_described(plan) for plan in plans],
        "code": [sha256_file(path) for path in code],
        "texts": [hashlib.sha256(text).hexdigest() for text in texts],
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).digest()


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    """A tensor; what its integers mean is part of it, for callers compile that in."""
    data = asdict(spec)
    if spec.quantisation is None:
        del data["quantisation"]
    return data


def _branches(plan: Plan) -> dict[str, Any]:
    """What decides where a run goes on, by symbol: no machine code has it."""
    return {kernel.symbol: asdict(kernel.branch) for kernel in plan.kernels if kernel.branch is not None}


def _described(plan: Plan) -> dict[str, Any]:
    def step(one: Any) -> dict[str, Any]:
        data = {"class": type(one).__name__, **asdict(one), "nodes": ()}
        if data.get("target") == -1:  # no branch
            del data["target"]
        return data

    return {
        "tensors": [_tensor(tensor) for tensor in (*plan.inputs, *plan.outputs)],
        "inputs": len(plan.inputs),
        "constants": [(one.dtype, one.shape, one.nbytes, one.offset) for one in plan.constants],
        "params": plan.params_bytes,
        "steps": [step(one) for one in plan.steps],
        **({"branches": branches} if (branches := _branches(plan)) else {}),
        **({"banks": plan.arena.banks} if plan.arena.banks else {}),
        "arenas": [(one.nbytes, one.threads, one.scratch_bytes) for one in (plan.arena, plan.gpu_arena)],
    }
