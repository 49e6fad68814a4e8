"""Layers and networks of many kinds beside eager, and what surrounds a compiled model."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import torch
from torch import nn

from tests.support.torch_compile.compared import Small, compiled, differences, said_by, small


class Residual(nn.Module):
    """A block of a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + x).relu()


class Words(nn.Module):
    """Indices in, and a network that reads them both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.past = nn.Embedding(50, 8), nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.past(self.table(ids))[0]).log_softmax(-1)


class Masked(nn.Module):
    """Attention with a mask of integers, as models of language take it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        y = x[:1].take_along_dim(which, 0)  # an index of one thing
        heads = x.unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask > 0) + y


class Attention(nn.Module):
    """Attention, written out by scaled_dot_product_attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(y.transpose(1, 2).flatten(2))


def few_networks() -> dict[str, Any]:
    """Two of them."""
    try:
        return networks(("words", "masked"))
    finally:  # both are of the whole process
        torch.backends.mha.set_fastpath_enabled(True)
        torch._dynamo.config.allow_rnn = False


def networks(chosen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Each beside eager."""
    encoder = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for all of a layer, which ONNX has not
    torch._dynamo.config.allow_rnn = True  # recurrent layers are not captured otherwise
    image = torch.randn(2, 8, 10, 10)
    cases: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
        "residual": (Residual(), (image,)),
        "channels last": (Residual(), (image.to(memory_format=torch.channels_last),)),
        "words": (Words(), (torch.randint(0, 50, (2, 7)),)),
        "attention": (Attention(), (torch.randn(2, 6, 16), torch.ones(6, 6).tril().bool())),
        "masked": (
            Masked(),
            (torch.randn(2, 6, 16), torch.arange(6).expand(6, 6) % 3, torch.zeros(1, 6, 16).long()),
        ),
        "encoder": (encoder, (torch.randn(2, 6, 16),)),
        "group norm": (nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2)), (image,)),
        "upsample": (nn.Sequential(nn.Upsample(scale_factor=2), nn.Hardswish()), (image,)),
        "transposed": (nn.ConvTranspose2d(8, 4, 2, 2), (image,)),
        "one dimension": (nn.Sequential(nn.Conv1d(8, 4, 3), nn.ELU()), (torch.randn(1, 8, 20),)),
        "float64": (nn.Linear(4, 4).double(), (torch.randn(3, 4, dtype=torch.float64),)),
        "bfloat16": (nn.Linear(4, 4).bfloat16(), (torch.randn(3, 4, dtype=torch.bfloat16),)),
        "float16": (nn.Linear(4, 4).half(), (torch.randn(3, 4, dtype=torch.float16),)),
        "scalars": (lambda x, y: (x + y, (x * 2).sum()), (torch.tensor(2.0), torch.randn(3))),
        "empty": (lambda x: (x + 1, x.sum(0)), (torch.randn(0, 3),)),
        "unread": (lambda x, y: x * y.shape[0], (torch.randn(3), torch.randn(5))),
    }
    found = {}
    for name in chosen or cases:
        model, inputs = cases[name]
        with torch.inference_mode():
            eager = (model.eval() if isinstance(model, nn.Module) else model)(*inputs)
            results: list[Any] = []
            fast = compiled(model)
            said = said_by(lambda fast=fast, inputs=inputs, to=results: to.append(fast(*inputs)))  # type: ignore[misc]
            found[name] = {"said": said, "wrong": differences(results[0], eager)}
    return found


def constants_that_change() -> dict[str, Any]:
    """Parameters that are loaded anew, a buffer that is written to between runs."""
    model = Small().eval()
    fast = compiled(model)
    wrong: list[str] = []
    with torch.no_grad():
        x, flags = small(2)
        for change in (
            lambda: None,
            lambda: model.load_state_dict(Small().state_dict()),
            lambda: model.lin.weight.mul_(3),
            lambda: model.scale.add_(1),
            lambda: model.scale.add_(1),
        ):
            change()
            wrong += differences(fast(x, flags), model(x, flags))
        said = said_by(lambda: fast(x, flags))
    return {"wrong": wrong, "said": said}


def surroundings() -> dict[str, Any]:
    """Hooks, autocast, two models with the same code, a child of a fork, memory that is not kept."""
    one, other = Small().eval(), Small().eval()
    one.lin.register_forward_hook(lambda _module, _inputs, output: output + 1)
    fast, also = compiled(one), compiled(other)
    x, flags = small(2)
    found: dict[str, Any] = {}
    with torch.no_grad():
        found["hook"] = differences(fast(x, flags), one(x, flags))
        found["other"] = differences(also(x, flags), other(x, flags))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lin, y = nn.Linear(4, 4), torch.randn(2, 4)
            found["autocast"] = differences(compiled(lin)(y), lin(y))
        eager = other(x, flags)  # here: PyTorch's own threads are not in a child of a fork
        child = os.fork()
        if child == 0:
            os._exit(int(bool(differences(also(x, flags), eager))))
        deadline = time.monotonic() + 60
        done, status = os.waitpid(child, os.WNOHANG)
        while not done and time.monotonic() < deadline:
            time.sleep(0.05)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, 9)
        found["fork"] = [] if done and status == 0 else [f"status {status}"]
    gc.collect()
    return found


def exported_for_tvm() -> dict[str, Any]:
    """A library for TVM's runtime. The last one, for it imports TVM into this process."""
    from tests.support import tvm_library

    return tvm_library.exported_for_tvm()
