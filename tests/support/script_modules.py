"""TorchScript of many kinds, scripted, traced and frozen; and archives that would do harm: a part of
``tests.support.script_programs``."""

from __future__ import annotations

import enum
import io
import os
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import edgepack
from edgepack.cli.main import main
from edgepack.compiler.frontend.torch.archive import script_program
from edgepack.compiler.frontend.torch.script.loading import load_script
from edgepack.compiler.frontend.torch.script.pickles import Made, Row
from tests.support.script_archives import ADDS, ARCHIVES, HEAD, archive, entries, module, tensor

__all__ = ["commanded", "harmful", "honest"]


class Found(NamedTuple):
    """What a module returns."""

    best: torch.Tensor
    mask: Optional[torch.Tensor]  # noqa: UP045 (which TorchScript reads)


class Kind(enum.Enum):
    """An attribute of a module."""

    SUM = "sum"
    MEAN = "mean"


@torch.jit.script
class Box:
    """A class of TorchScript's own."""

    def __init__(self, count: int):
        self.count = count
        self.kept: dict[str, torch.Tensor] = {}

    def put(self, name: str, value: torch.Tensor):  # type: ignore[no-untyped-def]
        """Keep a tensor."""
        self.kept[name] = value


class Texts(nn.Module):
    """Texts, lists and dicts; assertions, exceptions, prints; a class, an enumeration, a named tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.sizes, self.pair = ["a", "b"], {"a": 1, "b": 2}, (1, 2.5, "x")
        self.kind = Kind.SUM

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Found:  # noqa: UP045
        assert x.dim() == 3, f"Expected 3 dimensions but got {x.dim()} for {x.shape}"
        if x.size(0) > 100:
            raise ValueError(f"too large: {x.size(0)}")
        torch._assert(x.size(1) > 0, "empty")
        box = Box(3)
        for name in self.names:
            if name.startswith("a") and name in self.sizes:
                box.put(name, x * self.sizes[name])
        kept = [box.kept["a"] * i for i in range(box.count)]
        kept[0] = kept[1]
        del kept[2]
        print("kept", len(kept))
        total = torch.stack(kept)
        if self.kind == Kind.SUM:
            total = total.sum(0)
        one, half, _ = self.pair
        if mask is not None:
            total = total.masked_fill(mask > 0.5, float("-inf"))
        return Found(total * half + one, mask)


class Flow(nn.Module):
    """Loops with conditions, breaks, without gradients, slices, and a union."""

    def forward(self, x: Union[torch.Tensor, list[torch.Tensor]], times: int = 3) -> torch.Tensor:  # noqa: UP007
        y = x if isinstance(x, torch.Tensor) else x[0]
        i = 0
        while i < times and bool(y.sum() < 1000):
            y, i = y * 2, i + 1
            if i == 2:
                break
        with torch.no_grad():
            y = y + max(sorted([j * 2 for j in range(4)]))
        y[0, :2] = 5
        return y[..., 1:, None]


class Image(nn.Module):
    """Variants by name: modes, an equation, an approximation, a rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Hardswish()])
        self.heads = nn.ModuleDict({"a": nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())})

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        x = functional.interpolate(x, size=[5, 7], mode="bilinear", align_corners=False)
        x = functional.gelu(functional.pad(x, [1, 1, 1, 1], mode="replicate"), approximate="tanh")
        y = torch.einsum("bchw,bdhw->bcd", x, x)
        return torch.div(y, 2, rounding_mode="floor"), self.heads["a"](x.to(torch.float32))


class State(nn.Module):
    """What it is made of goes through ``__getstate__``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.ones(8)
        self.training = False

    @torch.jit.export
    def __getstate__(self):  # type: ignore[no-untyped-def]
        return (self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):  # type: ignore[no-untyped-def]
        self.weight, self.training = state[0] * 1, state[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


@torch.jit.interface
class Serves(nn.Module):
    """What a part has to have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Served(nn.Module):
    """Holds a part by its interface."""

    part: Serves

    def __init__(self) -> None:
        super().__init__()
        self.part = State()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part.forward(x)


Served.__annotations__["part"] = Serves  # PyTorch reads no annotation that is a text


class First(nn.Module):
    """The first result of a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


class Attends(First):
    """Of one whose three arguments are one tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x)[0]


def _modules() -> dict[str, Any]:
    """Scripts, each with the shape of what it takes."""
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    plain: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "texts": (Texts(), (2, 2, 2)),
        "flow": (Flow(), (3, 4)),
        "image": (Image(), (1, 3, 6, 6)),
        "state": (State(), (2, 8)),
        "interface": (Served(), (2, 8)),
        "encoder": (nn.TransformerEncoder(encoder, 1), (1, 3, 8)),
        "lstm": (First(nn.LSTM(4, 6, bidirectional=True)), (2, 3, 4)),
        "gru": (First(nn.GRU(4, 6)), (2, 3, 4)),
        "norms": (
            nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True), nn.PReLU()),
            (1, 4, 6),
        ),
    }
    found: dict[str, Any] = {
        name: (torch.jit.script(one.eval()), shape) for name, (one, shape) in plain.items()
    }
    traced = Attends(nn.MultiheadAttention(8, 2, batch_first=True)).eval()
    found["traced"] = torch.jit.trace(traced, torch.rand(1, 3, 8), check_trace=False), (1, 3, 8)
    found["traced lstm"] = torch.jit.trace(First(nn.LSTM(4, 6)).eval(), torch.rand(2, 3, 4)), (2, 3, 4)
    found["frozen"] = torch.jit.freeze(torch.jit.script(plain["image"][0])), (1, 3, 6, 6)
    return found


def honest(folder: Path) -> dict[str, str]:
    """By name, "same" where a script that was read computes what the one that was saved computes."""
    found = {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for name, (script, shape) in _modules().items():
            path, x = folder / f"{name.replace(' ', '_')}.pt", torch.rand(shape)
            script.save(str(path))
            try:
                ours = pytree.tree_flatten(load_script(path, folder)(x.clone()))
            except edgepack.EdgepackError as error:
                found[name] = error.message
                continue
            theirs = pytree.tree_flatten(script(x.clone()))
            same = all(a is None or torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
            found[name] = "same" if same and str(ours[1]) == str(theirs[1]) else f"{ours} beside {theirs}"
    return found


#: Makes a file.
_MAKES = "from_file('found', True, 2)"
_SAVES = "  def save(self, name: str) -> NoneType:\n    return None\n"
_TWO = """class Two:
  a : int
  b : int
  def __init__(self) -> NoneType:
    self.a = 1
    self.b = 2
    return None
"""
_DOUBLES = "def f{}(x: Tensor) -> Tensor:\n  return __torch__.f{}(__torch__.f{}(x))\n"
_BOMB = "".join(_DOUBLES.format(i, i + 1, i + 1) for i in range(40))
_BOMB += "def f40(x: Tensor) -> Tensor:\n  return torch.add(x, 1)\n"
_OUTER = HEAD.replace("class M", "class Outer") + "  m : __torch__.M\n"
_OUTER += "  def forward(self, x: Tensor) -> Tensor:\n    return x\n"

#: What a module does before it returns, and what is defined behind it.
_BODIES = {
    "blank": (f"x = torch.add(x, torch. {_MAKES})", ""),
    "tab": (f"x = torch.add(x, torch.\t{_MAKES})", ""),
    "parentheses": (f"x = torch.add(x, (torch).{_MAKES})", ""),
    "alias": (f"f = torch.from_file\n    x = torch.add(x, f{_MAKES[9:]})", ""),
    "getattr": (f"x = torch.add(x, getattr(torch, 'from_file'){_MAKES[9:]})", ""),
    "ops": (f"x = torch.add(x, ops. aten. {_MAKES})", ""),
    "save": ("torch. save(x, 'found')", ""),
    "method": ("x.save('found')", ""),
    "method of no list": ("x = x.to_sparse()", "  def to_sparse(self) -> NoneType:\n    return None\n"),
    "own method": ("x.save('found')", _SAVES),
    "text's method": ("('x').save('found')", _SAVES),
    "cast": ("y : Any = self\n    z = unchecked_cast(__torch__.Two, y)\n    x = torch.add(x, z.b)", _TWO),
    "bomb": ("x = __torch__.f0(x)", _BOMB),
    "memory": ("x = torch.sum(torch.zeros([1125899906842624]))", ""),
    "runs itself": ("x = (self).forward(x, )", ""),
    "index": ("x = torch.select(x, 0, 1099511627776)", ""),
    "divides": ("x = torch.add(x, torch.floordiv(1, torch.sub(torch.dim(x), 2)))", ""),
    "strides": ("x = torch.as_strided(x, [1000000], [1000000], 0)", ""),
    "indices": ("x = torch.index_select(torch.flatten(x), 0, torch.tensor([1099511627776]))", ""),
}


def _state(body: str, outer: bool = False) -> dict[str, bytes]:
    """An object that PyTorch runs code for while it reads it; ``outer``: it is an attribute of another."""
    code = ARCHIVES["state"]["code/__torch__.py"].decode().replace("self.w = torch.mul((state)[0], 1)", body)
    made = Made("__torch__.M", Row((tensor("0", 2), False)))
    root = module("__torch__.Outer", m=made) if outer else made
    bytes_of = {"data_0": bytes(8), "constants_0": bytes(4)}
    return entries(code + _OUTER if outer else code, root, [tensor("0", 1)], **bytes_of)


def _archives() -> dict[str, dict[str, bytes]]:
    """Archives that write a file ``found``, take memory that is not theirs, or do not end."""
    found = {
        name: entries(ADDS.replace("return torch.add(x, 1)", f"{body}\n    return torch.add(x, 1)") + behind)
        for name, (body, behind) in _BODIES.items()
    }
    longer = ADDS.replace("training : bool", "training : bool\n  w : Tensor").replace("(x, 1)", "(x, self.w)")
    return {
        **found,
        "default": entries(ADDS.replace("x: Tensor)", f"x: Tensor, y: Tensor=torch. {_MAKES})")),
        "state": _state(f"self.w = torch. {_MAKES}"),
        "state within": _state(f"self.w = torch.mul(torch. {_MAKES}, 1)", outer=True),
        "beyond": entries(longer, module(w=tensor("0", 1 << 20, count=2)), data_0=bytes(8)),
        "claimed": entries(longer, module(w=tensor("0", 1 << 20)), data_0=bytes(8)),
        "attribute": entries(longer, module(w=7)),
    }


def harmful(folder: Path) -> dict[str, list[str]]:
    """Of each archive the class of the error, its message, and the files that it left."""
    found = {}
    for name, one in _archives().items():
        place = folder / name.replace(" ", "_").replace("'", "")
        place.mkdir()
        path, before = archive(place / "model.pt", one), Path.cwd()
        os.chdir(place)
        try:
            script_program(path, place, {"x": (2, 2)}, {})
            said = ["nothing", ""]
        except edgepack.EdgepackError as error:
            said = [type(error).__name__, error.message]
        finally:
            os.chdir(before)
        found[name] = [*said, *sorted(file.name for file in place.iterdir() if file != path)]
    return found


def commanded(folder: Path) -> list[Any]:
    """Exit codes, what is said, and the files that are left of ``edgepack check`` and ``inspect``."""
    writes = ADDS.replace("(x, 1)", f"(x, torch. from_file('{folder}/found', True, 2))")
    path, said = archive(folder / "model.jit", entries(writes)), io.StringIO()
    with redirect_stderr(said):
        checked = main(["check", str(path), "--device", "linux-x86_64", "--shape", "x=1,2"])
        codes = [checked, main(["inspect", str(path)])]
    return [codes, said.getvalue(), sorted(file.name for file in folder.iterdir())]
