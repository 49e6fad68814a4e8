"""TorchScript archives written by hand, without PyTorch: texts of code, and values for their pickles."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgepack.compiler.frontend.torch.script.pickle_writer import write
from edgepack.compiler.frontend.torch.script.pickles import Items, Made, Pairs, Row, Stored, Tensor

__all__ = ["ADDS", "ARCHIVES", "HEAD", "archive", "entries", "module", "tensor"]

HEAD = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
#: One that adds 1, as torch.jit.save writes it.
ADDS = HEAD + "  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    return torch.add(x, 1)\n"

_NETWORK = """class Net(Module):
  __parameters__ = ["weight", "bias", ]
  __buffers__ = ["scale", ]
  weight : Tensor
  bias : Optional[Tensor]
  scale : Tensor
  training : bool
  _is_full_backward_hook : NoneType
  sizes : List[int]
  named : Dict[str, float]
  __annotations__["0"] = __torch__.inner.Act
  eps : Final[float] = 1.0000000000000001e-05
  limits : Final[Tuple[int, float]] = (-1, inf)
  def forward(self: __torch__.Net,
    input: Tensor,
    mask: Optional[Tensor]=None) -> Tuple[Tensor, __torch__.inner.Found]:
    _0 = __torch__.inner.shifted
    weight = self.weight
    bias = self.bias
    input0 = torch.linear(input, weight, bias)
    _1 = getattr(self, "0")
    x = (_1).forward(input0, )
    if torch.__is__(mask, None):
      y = x
    else:
      mask0 = unchecked_cast(Tensor, mask)
      y = torch.mul(x, mask0)
    named = self.named
    _2 = annotate(List[Tensor], [])
    for i in range(torch.len(self.sizes)):
      _3 = torch.append(_2, _0(y, named["k"], ))
    total = torch.sum(torch.stack(_2), [0], False, dtype=None)
    if torch.eq(torch.dim(total), 7):
      ops.prim.RaiseException(torch.format("Expected {}", torch.size(total)), "builtins.ValueError")
    else:
      pass
    size = ops.prim.dtype(total)
    found = __torch__.inner.Found(total, size)
    print("found", size)
    return (torch.to(total, 6), found)
"""
_INNER = """class Act(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  kind : __torch__.inner.Kind
  box : __torch__.inner.Box
  def forward(self: __torch__.inner.Act,
    x: Tensor) -> Tensor:
    kind = self.kind
    i = 0
    _0 = torch.lt(i, 2)
    while _0:
      i0 = torch.add(i, 1)
      _0, i = torch.lt(i0, 2), i0
    box = self.box
    a, b, = box.pair
    if torch.eq(kind, __torch__.inner.Kind.GELU):
      y = torch.gelu(x, approximate="none")
    else:
      y = torch.relu(x)
    made = __torch__.inner.Box.__new__(__torch__.inner.Box)
    made.pair = (a, torch.add(b, (made).two()))
    return torch.mul(y, -a)
class Kind(Enum):
  GELU = "gelu"
  RELU = "relu"
class Box:
  pair : Tuple[float, int]
  def two(self: __torch__.inner.Box) -> int:
    return 2
class Found(NamedTuple):
  total : Tensor
  dtype : int
def shifted(x: Tensor,
    by: float) -> Tensor:
  return torch.add(x, by)
"""
_STATE = """class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  w : Tensor
  def __getstate__(self: __torch__.M) -> Tuple[Tensor, bool]:
    return (self.w, self.training)
  def __setstate__(self: __torch__.M,
    state: Tuple[Tensor, bool]) -> NoneType:
    self.w = torch.mul((state)[0], 1)
    self.training = (state)[1]
    return None
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    _0 = annotate(Dict[str, Tensor], {"a": CONSTANTS.c0})
    y = torch.slice(torch.select(x, 0, 0), 0, None, 2)
    return torch.sub(torch.add(x, self.w), _0["a"])
"""


def tensor(key: str, *sizes: int, count: int | None = None, kind: str = "Float") -> Tensor:
    """A contiguous one in a storage of its own."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return Tensor(Stored(kind, key, step if count is None else count), 0, sizes, tuple(strides[::-1]), False)


def module(name: str = "__torch__.M", **attributes: Any) -> Made:
    """An object with these attributes."""
    return Made(name, Pairs(list({"training": False, **attributes}.items())))


def entries(
    code: str | Mapping[str, str] = ADDS, root: Any = None, constants: Any = (), **storages: bytes
) -> dict[str, bytes]:
    """What is in an archive, by name below its folder.

    Args:
        code: of the file ``code/__torch__.py``, or of files by name.
        storages: their bytes by ``data_0``, ``constants_0``.
    """
    files = {"code/__torch__.py": code} if isinstance(code, str) else code
    return {
        "data.pkl": write(module() if root is None else root),
        "constants.pkl": write(Row(tuple(constants))),
        "version": b"10\n",
        "byteorder": b"little",
        **{name: text.encode() for name, text in files.items()},
        **{name.replace("_", "/"): data for name, data in storages.items()},
    }


def archive(path: Path, found: Mapping[str, bytes]) -> Path:
    """The file."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in found.items():
            packed = zipfile.ZIP_DEFLATED if name.startswith("code/") else zipfile.ZIP_STORED
            file.writestr(f"m/{name}", data, packed)
    return path


def _network() -> dict[str, bytes]:
    weight, scale = tensor("0", 3, 2), tensor("1", 3)
    act = module(
        "__torch__.inner.Act",
        kind=Made("__torch__.inner.Kind", "relu", member=True),
        box=Made("__torch__.inner.Box", Pairs([("pair", Row((0.5, 1)))])),
    )
    root = module(
        "__torch__.Net",
        **{"weight": weight, "bias": scale, "scale": scale, "_is_full_backward_hook": None, "0": act},
        sizes=Items([1, 2], "List[int]"),
        named=Pairs([("k", 0.25)], "Dict[str, float]"),
    )
    files = {"code/__torch__.py": _NETWORK, "code/__torch__/inner.py": _INNER}
    return entries(files, root, data_0=struct.pack("<6f", *range(6)), data_1=struct.pack("<3f", 1, 2, 3))


def _with_state() -> dict[str, bytes]:
    root = Made("__torch__.M", Row((tensor("0", 2), False)))
    return entries(_STATE, root, [tensor("0", 1)], data_0=bytes(8), constants_0=bytes(4))


#: Good ones, by name; each takes ``x`` or ``input`` of float32 with 2 columns.
ARCHIVES: dict[str, dict[str, bytes]] = {
    "adds": entries(),
    "network": _network(),
    "state": _with_state(),
}
