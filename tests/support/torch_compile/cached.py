"""What is found in the cache of libraries, and by which keys."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgepack.config.device import load_device
from edgepack.pipeline.cache import Cache
from edgepack.torch import compiled as compiled_module
from edgepack.torch.canonical import UnknownError, torch_state
from edgepack.torch.kept import key_of
from tests.support.torch_compile.compared import Small, compiled, differences, said_by, small


def kept() -> dict[str, Any]:
    """What is exported in a process that may find a library in the cache: ``EDGEPACK_TEST_SEED`` says whose
    weights. Then once more: with an entry that is damaged, and what was refused."""
    torch.manual_seed(int(os.environ["EDGEPACK_TEST_SEED"]))
    model, (x, flags) = Small().eval(), small(2)
    exports: list[str] = []

    def counted(*arguments: Any) -> Any:
        exports.append("one")
        return captured(*arguments)

    def run(function: Any, *inputs: torch.Tensor) -> dict[str, Any]:
        torch._dynamo.reset()
        exports.clear()
        results: list[Any] = []
        with torch.no_grad():
            said = said_by(lambda: results.append(compiled(function, threads=1)(*inputs)))
            if "draws" not in str(said):
                said += differences(results[0], function(*inputs))
        return {"exports": len(exports), "said": said}

    def draws(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() + torch.rand(3)

    captured, compiled_module.captured = compiled_module.captured, counted  # type: ignore[attr-defined]
    places: list[Path] = []
    find = Cache.find
    Cache.find = lambda self, key: (places.append(self.root / key), find(self, key))[1]  # type: ignore
    try:
        found = {"first": run(model, x, flags)}
        if sys.argv[1:]:  # the second process
            return found
        found["second"] = run(model, x, flags)
        file = places[-1] / "bundle/lib/libsubgraph.so"
        content = file.read_bytes()
        file.unlink()  # another file of this name: the library is open
        file.write_bytes(content[:-1] + b"?")
        found["damaged"] = run(model, x, flags)
        found["mended"] = run(model, x, flags)
        run(draws, torch.ones(3))
        found["refused"] = run(draws, torch.ones(3))
    finally:
        compiled_module.captured = captured  # type: ignore[attr-defined]
        Cache.find = find  # type: ignore[method-assign]
    return found


def keys() -> dict[str, Any]:
    """Keys of subgraphs that differ in one thing, by its name; "" for those that have none."""
    linear, x = nn.Linear(3, 3), torch.ones(2, 3)

    def key(function: Any, *inputs: torch.Tensor, constants: Any = None, options: Any = None) -> str:
        torch._dynamo.reset()
        found: list[str] = []

        def collect(gm: torch.fx.GraphModule, args: Any) -> Any:
            held = [i for i, one in enumerate(args) if isinstance(one, nn.Parameter)]
            held = held if constants is None else constants
            found.append(key_of(gm, args, held, load_device("host"), options or {}))
            return gm

        with torch.no_grad():
            torch.compile(function, backend=collect)(*inputs)
        return found[0]

    def shifted(by: Any) -> Any:
        return lambda y: (y + by).relu()

    plain, host = key(linear, x), torch.get_default_dtype()
    found = {"plain": plain, "again": key(linear, x), "copied": key(copy.deepcopy(linear), x.clone())}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found["autocast"] = key(linear, x)
    torch.set_default_dtype(torch.float64)
    found["default"] = key(linear, x)
    torch.set_default_dtype(host)
    found["options"] = key(linear, x, options={"precision": "fp16"})
    found["varies"] = key(linear, x, constants=[])
    found["shape"], found["strides"] = key(linear, x[:1]), key(linear, torch.ones(3, 2).T)
    found["dtype"] = key(copy.deepcopy(linear).double(), x.double())
    with torch.no_grad():
        linear.weight[0, 0] = torch.nextafter(linear.weight[0, 0], torch.tensor(9.0))
    found["weight"] = key(linear, x)
    for value in (1, 2, True, 0.0, -0.0, float("nan")):
        found[f"plus {value}"] = key(shifted(value), x)
    found["kind"] = key(lambda y: (y + 1).sigmoid(), x)
    found["of the user"] = key(lambda y: allowed(y) + 1, x)
    with torch.device("cpu"), contextlib.suppress(UnknownError):
        found["mode"] = ""
        found["mode"] = str(torch_state())
    return found


@torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
def allowed(x: torch.Tensor) -> torch.Tensor:
    """A function that PyTorch does not look into."""
    return x * 2
