"""What models are compiled by, what is said meanwhile, and what is wrong with their results."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

SAID: list[str] = []


class Kept(logging.Handler):
    """Keeps what is logged for :func:`said_by`."""

    def emit(self, record: logging.LogRecord) -> None:
        SAID.append(record.getMessage())


def said_by(run: Any) -> list[str]:
    """What is logged meanwhile."""
    SAID.clear()
    run()
    return list(SAID)


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="edgepack", options=options or None)


def differences(found: Any, eager: Any) -> list[str]:
    """How results are not those of eager: values, dtypes, shapes and strides of each."""
    found, eager = ((one,) if isinstance(one, torch.Tensor) else one for one in (found, eager))
    wrong = [] if len(found) == len(eager) else [f"{len(found)} results"]
    for index, (one, other) in enumerate(zip(found, eager, strict=False)):
        if not isinstance(other, torch.Tensor):
            wrong += [f"{index}: {one!r}"] * (one != other)
        elif (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride()):
            wrong.append(f"{index}: {one.dtype} {tuple(one.shape)} {one.stride()}")
        elif other.dtype.is_floating_point:
            least = 0.05 if other.dtype in (torch.bfloat16, torch.float16) else 1e-4
            if not torch.allclose(one, other, rtol=least, atol=least):
                wrong.append(f"{index}: off by {float((one - other).abs().max())}")
        elif not torch.equal(one, other):
            wrong.append(f"{index}: {int((one != other).sum())} differ")
    return wrong


class Small(nn.Module):
    """Results of many kinds: a view of another, strides of their own, bool, int64, a number, None."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.lin = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 6)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: torch.Tensor, flags: torch.Tensor) -> tuple[Any, ...]:
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        y = self.drop(self.lin(x)) * self.scale
        y = torch.where(flags, y, -y).view(-1, 2, 3)
        return y, y[:, 0], y.transpose(1, 2) + 1, y > 0, y.argmax(-1), x.shape[0], None


def small(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 3, 8, 8), torch.rand(6) > 0.5
