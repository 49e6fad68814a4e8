"""A GPU's part of ``model.c``: the program for its driver, and the list of steps as the runtime reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from edgepack.plan.types import Argument, Copy, Launch, Plan, Step
from edgepack.render.names import c_string

__all__ = ["GpuImage", "GpuKernels", "gpu_places", "gpu_values"]

#: Bytes of a piece of the source: C99 compilers need not take longer string literals than 4095.
PIECE_BYTES = 2000

#: What kernels of a rule ask of Apple's GPUs: the least family.
_FAMILIES = {"metal.simdgroup_matrix": 7}

_HOSTS = {"input": "INPUT", "output": "OUTPUT", "arena": "ARENA", "constant": "PARAMS"}


@dataclass(frozen=True)
class GpuImage:
    """What was made of the kernels' text: a ``cubin``, ``ptx`` or a ``metallib``.

    Attributes:
        capability: compute capability (10 * major + minor) of the GPUs of NVIDIA's that it is for; else 0.
    """

    capability: int
    kind: str
    content: bytes


@dataclass(frozen=True)
class GpuKernels:
    """The GPU's kernels: a source that the driver compiles, or images that it loads."""

    source: str = ""
    images: tuple[GpuImage, ...] = ()


@dataclass
class _Places:
    """Tensors in the GPU's memory, each once, and the lists of arguments of all steps."""

    plan: Plan
    rows: dict[tuple[int, int, str], int] = field(default_factory=dict)
    arguments: list[int] = field(default_factory=list)

    def add(self, arguments: Sequence[Argument]) -> int:
        """Adds these arguments; returns where their list begins."""
        first = len(self.arguments)
        for argument in arguments:
            base = self.plan.constants[argument.index].offset if argument.kind == "constant" else 0
            memory = "EP_GPU_PARAMS" if argument.kind == "constant" else "EP_GPU_ARENA"
            row = (base + argument.offset, argument.nbytes, memory)
            self.arguments.append(self.rows.setdefault(row, len(self.rows)))
        return first


def gpu_places(plan: Plan) -> int:
    """How many different tensors there are in the GPU's memory, constants among them."""
    places = _Places(plan)
    for step in plan.steps:
        if isinstance(step, Launch):
            places.add(step.arguments)
        elif isinstance(step, Copy):
            places.add([step.device])
    return len(places.rows)


def gpu_values(plan: Plan, made: GpuKernels) -> dict[str, object]:
    """What ``model.c.j2`` names of a plan with a GPU, for which kernels were ``made``."""
    kernels = [kernel.symbol for kernel in plan.kernels if kernel.backend != "cpu"]
    numbers = {symbol: number for number, symbol in enumerate(kernels)}
    places = _Places(plan)
    steps = [_step(plan, step, numbers, places) for step in plan.steps]
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    return {
        "api": plan.gpu_api.upper(),
        "kernels": [c_string(symbol) for symbol in kernels],
        "places": [f"UINT64_C({at}), UINT64_C({n}), {memory}, 0" for at, n, memory in places.rows],
        "arguments": places.arguments,
        "steps": steps,
        "source": [c_string(piece) for piece in _pieces(made.source)],
        "images": [
            {
                "name": f"{image.kind}{image.capability or ''}",
                "words": _words(image.content),
                "nbytes": len(image.content),
                "capability": image.capability,
                "ptx": int(image.kind == "ptx"),
            }
            for image in made.images
        ],
        "most_threads": max((prod(launch.threads) for launch in launches), default=1),
        "local_bytes": max((launch.local_bytes for launch in launches), default=0),
        "family": max((_FAMILIES.get(kernel.rule, 0) for kernel in plan.kernels), default=0),
        "arena_bytes": plan.gpu_arena.nbytes,
        "on_cpu": _on_cpu(plan),
    }


def _on_cpu(plan: Plan) -> list[int]:
    """Whether a step of the CPU uses each input, then each output: 1 or 0."""
    used = {
        (argument.kind, argument.index)
        for step in plan.steps
        if isinstance(step, Step)
        for argument in step.arguments
    }
    tensors = [("input", i) for i in range(len(plan.inputs))]
    tensors += [("output", i) for i in range(len(plan.outputs))]
    return [int(tensor in used) for tensor in tensors]


def _step(plan: Plan, step: object, numbers: dict[str, int], places: _Places) -> str:
    """The initialiser of one ``ep_gpu_step``."""
    if isinstance(step, Launch):
        groups, threads = (", ".join(f"{n}u" for n in row) for row in (step.groups, step.threads))
        kernel, first = numbers[step.kernel], places.add(step.arguments)
        launch = f"EP_STEP_LAUNCH, {kernel}, {{{groups}}}, {{{threads}}}"
        return f"{launch}, {first}, {len(step.arguments)}, 0, 0, 0, 0"
    if isinstance(step, Copy):
        kind = "UPLOAD" if step.upload else "DOWNLOAD"
        first = places.add([step.device])
        host = step.host
        constant = host.kind == "constant"
        offset = host.offset + (plan.constants[host.index].offset if constant else 0)
        index = 0 if constant else host.index
        return (
            f"EP_STEP_{kind}, 0, {{0, 0, 0}}, {{0, 0, 0}}, {first}, 1, EP_HOST_{_HOSTS[host.kind]}, {index}, "
            f"UINT64_C({offset}), UINT64_C({step.device.nbytes})"
        )
    return "EP_STEP_CALL, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0"


def _words(content: bytes) -> list[str]:
    """Rows of a C array with the bytes as little-endian numbers of 64 bits: so has them every CPU beside a
    GPU."""
    padded = content + bytes(-len(content) % 8)
    numbers = [f"0x{int.from_bytes(padded[i : i + 8], 'little'):x}" for i in range(0, len(padded), 8)]
    return [", ".join(numbers[i : i + 6]) for i in range(0, len(numbers), 6)]


def _pieces(source: str) -> list[str]:
    """The text, cut behind lines."""
    pieces = [""]  # of CUDA, which has images instead, an empty one
    for line in source.splitlines(keepends=True):
        if pieces[-1] and len(pieces[-1]) + len(line) > PIECE_BYTES:
            pieces.append("")
        pieces[-1] += line
    return pieces
