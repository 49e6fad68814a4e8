"""Runs models under ``torch.compile(model, backend="edgepack")``, in a process that has PyTorch, and prints
what came of each as JSON. ``python -m tests.support.torch_compile [slow | kept]``."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.registry import list_backends, register_backend

import edgepack.torch as edgepack_torch
from edgepack.config.device import load_device
from edgepack.errors import ConfigError
from edgepack.pipeline.cache import Cache
from edgepack.torch import compiled as compiled_module
from edgepack.torch.canonical import UnknownError, torch_state
from edgepack.torch.kept import key_of
from edgepack.torch.options import compile_options

SAID: list[str] = []


class _Kept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SAID.append(record.getMessage())


def said_by(run: Any) -> list[str]:
    """What is logged meanwhile."""
    SAID.clear()
    run()
    return list(SAID)


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="edgepack", options=options or None)


def readme() -> dict[str, Any]:
    """The lines that README.md shows, run as they are."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = text.partition("fast = torch.compile(")
    shown = lines[1] + lines[2].partition("```")[0]
    torch.manual_seed(6)
    names: dict[str, Any] = {"torch": torch, "x": torch.randn(3, 8)}
    names["model"] = nn.Sequential(nn.Linear(8, 5), nn.GELU(), nn.Dropout())
    said = said_by(lambda: exec(shown, names))
    with torch.inference_mode():
        wrong = differences(names["outputs"], names["model"](names["x"]))
    return {"wrong": wrong, "said": said, "lines": shown.count("\n")}


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


def results_of_many_kinds() -> dict[str, Any]:
    """The same as eager, from several threads too; inputs stay as they are, views are views."""
    model = Small().eval()
    fast = compiled(model, threads=1)
    x, flags = small(2)
    before = x.clone()
    with torch.inference_mode():
        said = said_by(lambda: fast(x, flags))
        first, wrong = fast(x, flags), differences(fast(x, flags), model(x, flags))
    again = fast_in_threads(model, fast)
    return {
        "said": said,
        "wrong": wrong + again,
        "input changed": not torch.equal(x, before),
        "view": first[0].untyped_storage().data_ptr() == first[1].untyped_storage().data_ptr(),
        "inference": first[0].is_inference(),
    }


def memory() -> dict[str, Any]:
    """Results that share memory with inputs, with each other, or are the same; inputs that lie oddly; a
    subgraph without results."""
    weight = torch.randn(4, 6)

    def shares(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x @ weight).relu()
        left, right = y.chunk(2, -1)
        z = x.exp()
        return x, x[1:].T, left, right, z, z

    fast, wrong = compiled(shares, threads=1), []
    storage = torch.randn(100)
    odd = torch.frombuffer(bytearray(1 + 4 * 12), dtype=torch.float32, offset=1, count=12).view(3, 4)
    odd.copy_(storage[:12].view(3, 4))
    cases = {
        "plain": storage[:12].view(3, 4),
        "with an offset": storage[5:17].view(3, 4),
        "not aligned": odd,
        "transposed": storage[:12].view(4, 3).T,
        "with a gradient": storage[:12].view(3, 4).clone().requires_grad_(),
    }
    with torch.no_grad():
        said: list[str] = []
        for name, x in cases.items():
            found: list[Any] = []
            said += said_by(lambda x=x, to=found: to.extend(fast(x)))  # type: ignore[misc]
            eager = shares(x)
            wrong += [
                f"{name}: {one}" for one in differences([*found[:2], *found[4:]], [*eager[:2], *eager[4:]])
            ]
            wrong += [name] * (not all(map(torch.allclose, found[2:4], eager[2:4])))
            places = [one.untyped_storage().data_ptr() for one in found]
            wrong += [f"{name}: memory"] * (
                places[0] != places[1] or places[0] != x.untyped_storage().data_ptr()
            )
            wrong += [f"{name}: memory of results"] * (len(set(places)) != 4 or places[4] != places[5])
        flags = torch.tensor([True, False, True])
        both = compiled(lambda a, b: (a & b, ~a))
        said += said_by(lambda: wrong.extend(differences(both(flags, ~flags), (flags & ~flags, ~flags))))
        nothing = torch.fx.symbolic_trace(lambda x: ())
        none = []
        none += said_by(lambda: none.append(edgepack_torch.backend(nothing, [storage])(storage)))
    return {"wrong": wrong, "said": said, "none": none}


def fast_in_threads(model: Any, fast: Any) -> list[str]:
    """What is wrong in four threads, each with inputs of its own."""
    wrong: list[str] = []

    def run() -> None:
        inputs = [small(2) for _ in range(20)]  # not of inference mode, for which PyTorch would capture anew
        with torch.inference_mode():
            for x, flags in inputs:
                wrong.extend(differences(fast(x, flags), model(x, flags)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def sizes_that_vary() -> dict[str, Any]:
    """Compiled for one more size than the first, then eager, which is said once."""
    model = nn.Sequential(nn.Linear(4, 5), nn.GELU()).eval()
    fast = compiled(model, threads=1, shapes=1)
    wrong: list[str] = []

    def run() -> None:
        with torch.no_grad():
            for count in (3, 4, 5, 6, 4):
                x = torch.randn(count, 4)
                wrong.extend(differences(fast(x), model(x)))

    torch._dynamo.mark_dynamic(first := torch.randn(2, 4), 0)
    with torch.no_grad():
        wrong += differences(fast(first), model(first))
    return {"said": said_by(run), "wrong": wrong}


class Broken(nn.Module):
    """Two subgraphs, one with an operator that cannot be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.special.bessel_j0(self.lin(x)) + 1
        torch._dynamo.graph_break()
        return torch.tanh(self.lin(x))


def explained() -> dict[str, Any]:
    """A graph break and an operator that cannot be exported, as the table has them."""
    model, x = Broken().eval(), torch.randn(3, 4)
    found = edgepack_torch.explain(model, x, options={"threads": 1}, runs=2)
    return {
        "compiled": [one.compiled for one in found.subgraphs],
        "reasons": [one.reason for one in found.subgraphs],
        "operators": [one.operators for one in found.subgraphs],
        "shares": [one.share for one in found.subgraphs],
        "table": str(found),
    }


def eager_with_a_sentence() -> dict[str, Any]:
    """What edgepack does not compile: what is said, and whether results are those of eager."""

    def adds(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    def draws(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)

    def viewed(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)

    trained = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    learning = nn.Linear(3, 3)
    found: dict[str, Any] = {}
    for name, model in (("writes", adds), ("draws", draws), ("viewed", viewed), ("train", trained)):
        x = torch.ones(3, 3)
        torch.manual_seed(1)
        with torch.no_grad():
            eager = model(x.clone())
            torch.manual_seed(1)
            said = said_by(lambda model=model, x=x: found.update(result=compiled(model)(x)))  # type: ignore[misc]
        found[name] = {"said": said, "wrong": differences(found.pop("result"), eager), "x": float(x[0, 0])}
    fast = compiled(learning)
    said = said_by(lambda: fast(torch.ones(1, 3)).sum().backward())
    found["gradients"] = {
        "said": said,
        "wrong": [] if learning.weight.grad is not None else ["none"],
        "x": 1.0,
    }
    return found


def refused_options() -> dict[str, str]:
    """What is said of options that there are not."""
    said = {}
    given = (
        *(("opt_level", 4), ("thread", 1), ("threads", 0), ("shapes", "many"), ("weights", 3)),
        *(("scheduler", "tuned"), ("scheduler", "meta_schedule"), ("scheduler", "fast"), ("trials", 20000)),
    )
    for name, value in given:
        try:
            compiled(nn.Linear(2, 2), **{name: value})(torch.ones(1, 2))
        except Exception as error:  # PyTorch's, around edgepack's
            said[f"{name} {value}"] = f"{type(error).__name__}: {error}"
        torch._dynamo.reset()
    return said


def schedulers_of_the_environment() -> dict[str, list[str]]:
    """What is said of values of ``TVM_SCHEDULER``, each beside no option, and beside ``rules``."""
    found = {}
    for value in ("", "default", "meta_schedule", "meta_schedule", "auto_scheduler", "fast", "tuned"):
        os.environ["TVM_SCHEDULER"] = value
        for options in ({"scheduler": "rules"}, {}):
            try:
                said = said_by(lambda options=options: compile_options(options))  # type: ignore[misc]
            except ConfigError as error:
                said = [error.message]
            found[f"{value} {len(found)}"] = said
    del os.environ["TVM_SCHEDULER"]
    return found


def plain_loops() -> dict[str, Any]:
    """Level 0: how many operators the kernels of each library have."""
    torch.manual_seed(int(os.environ["EDGEPACK_TEST_SEED"]))  # weights that are not in the cache
    bundles = []
    pack = compiled_module.pack

    def noting(*args: Any, **keywords: Any) -> Any:
        bundle = pack(*args, **keywords)
        bundles.append(bundle.manifest)
        return bundle

    model, x = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten()), torch.ones(1, 3, 5, 5)
    compiled_module.pack = noting
    try:
        with torch.inference_mode():
            wrong = differences(compiled(model, opt_level=0)(x), model(x))
    finally:
        compiled_module.pack = pack
    operators = {len(kernel.ops) for manifest in bundles for kernel in manifest.kernels}
    levels = [manifest.options.opt_level for manifest in bundles]
    return {"wrong": wrong, "levels": levels, "operators": sorted(operators)}


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


# Slow -----------------------------------------------------------------------------------------------------


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


QUICK = (
    *(
        readme,
        few_networks,
        results_of_many_kinds,
        memory,
        sizes_that_vary,
        explained,
        eager_with_a_sentence,
        refused_options,
    ),
    schedulers_of_the_environment,
    plain_loops,
    kept,
    keys,
    exported_for_tvm,
)
SLOW = (networks, constants_that_change, surroundings)


PARTS = {"slow": SLOW, "kept": (kept,)}


def main() -> None:
    """Everything, each part by its name."""
    torch.manual_seed(0)
    logging.getLogger("edgepack.torch").addHandler(_Kept())
    found: dict[str, Any] = {"listed": "edgepack" in list_backends()}
    if not found["listed"]:  # an installation of another version than this one
        register_backend(edgepack_torch.backend, name="edgepack")
    for part in PARTS[sys.argv[1]] if sys.argv[1:] else QUICK:
        found[part.__name__] = part()
        torch._dynamo.reset()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
