"""Results under ``torch.compile``, and what is said of models and options."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

import edgepack.torch as edgepack_torch
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.errors import ConfigError
from edgepack.plan.tuned import TunedChoice
from edgepack.torch import compiled as compiled_module
from edgepack.torch.options import compile_options
from tests.support.torch_compile.compared import Small, compiled, differences, said_by, small


def readme() -> dict[str, Any]:
    """The lines that README.md shows, run as they are."""
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    lines = text.partition("fast = torch.compile(")
    shown = lines[1] + lines[2].partition("```")[0]
    torch.manual_seed(6)
    names: dict[str, Any] = {"torch": torch, "x": torch.randn(3, 8)}
    names["model"] = nn.Sequential(nn.Linear(8, 5), nn.GELU(), nn.Dropout())
    said = said_by(lambda: exec(shown, names))
    with torch.inference_mode():
        wrong = differences(names["outputs"], names["model"](names["x"]))
    return {"wrong": wrong, "said": said, "lines": shown.count("\n")}


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
        *(("tuned", "none.json"), ("tuned", 3)),
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


def tuned_schedules() -> dict[str, Any]:
    """How many choices the libraries are packed with, and what is said of files that have none for this CPU,
    which are looked for in two calls."""
    torch.manual_seed(int(os.environ["EDGEPACK_TEST_SEED"]) + 1)
    recorded: list[int] = []
    pack = compiled_module.pack

    def noting(*args: Any, **keywords: Any) -> Any:
        bundle = pack(*args, **keywords)
        tuned = bundle.manifest.options.tuned
        recorded.append(tuned.choices if tuned else 0)
        return bundle

    model, x, wrong = nn.Linear(8, 8).eval(), torch.ones(2, 8), []
    kind = load_device("host").cpu_target().cpu_kind
    with tempfile.TemporaryDirectory() as folder:

        def file(name: str, cpu: str) -> Path:
            choice = TunedChoice(cpu, f"no such group: {name}", "none", {}, 1.5)
            write_tuned(Path(folder, name), TunedFile((choice,)))
            return Path(folder, name)

        def run(tuned: Any) -> int:
            torch._dynamo.reset()
            before = len(recorded)
            with torch.inference_mode():
                wrong.extend(differences(compiled(model, scheduler="tuned", tuned=tuned)(x), model(x)))
            return len(recorded) - before

        one, two, other = file("one", kind), file("two", kind), str(file("other", "other"))
        compiled_module.pack = noting
        try:
            packed = [run(str(one)), run([one]), run([one, two])]
            taken = list(recorded)
            said = said_by(lambda: run(other)) + said_by(lambda: run([other]))
        finally:
            compiled_module.pack = pack
    try:
        missing = said_by(lambda: compile_options({"scheduler": "tuned", "tuned": "none.json"}))
    except ConfigError as error:
        missing = [error.message]
    return {"packed": packed, "recorded": taken, "wrong": wrong, "said": said, "missing": missing}


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
