"""The function that PyTorch calls with each subgraph that it captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from edgepack.torch.options import compile_options
from edgepack.torch.subgraph import Subgraph

__all__ = ["backend"]


def backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Any = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend ``edgepack`` of ``torch.compile``: not called by users.

    Args:
        gm: a subgraph, which takes and returns tensors side by side; parameters and buffers are among its
            inputs.
        example_inputs: what it will be called with: tensors and whole numbers.
        options: ``threads``, ``shapes``, ``scheduler``, ``tuned``, ``precision`` and ``weights``
            (docs/pytorch.md).
        mode: of ``torch.compile``, which has to be its default.

    Returns:
        what runs it: compiled when it is first called, or as PyTorch does where it cannot be compiled.

    Raises:
        ConfigError: there is no such option.
    """
    return Subgraph(gm, example_inputs, compile_options(options, mode))
