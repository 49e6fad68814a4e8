"""The second module of a bundle for WebAssembly: the same kernels and params, for threads."""

from __future__ import annotations

from dataclasses import replace

from edgepack.bundle.compile_sources import compile_sources
from edgepack.bundle.manifest import ThreadsModule
from edgepack.bundle.recipe import Recipe
from edgepack.objectfiles.audit import audit
from edgepack.plan.types import Copy, Plan
from edgepack.render import sources
from edgepack.system.progress import Progress
from edgepack.toolchains.zig_shared_memory import with_shared_memory

__all__ = ["LEAST_FLOPS", "build", "helps"]

#: Operations of a run from which on threads help: notes/webassembly.md.
LEAST_FLOPS = 20_000_000


def helps(plan: Plan) -> bool:
    """Whether a run is long enough for threads."""
    kernels = {kernel.symbol: kernel for kernel in plan.kernels}
    steps = zip(plan.steps, plan.executions(), strict=True)
    flops = sum(times * kernels[step.kernel].flops for step, times in steps if not isinstance(step, Copy))
    return flops >= LEAST_FLOPS


def build(recipe: Recipe, plan: Plan, progress: Progress) -> ThreadsModule | None:
    """Compile, link and audit the module. There is none where the device or the toolchain has no threads,
    where they would not help, and where the params are in the modules: the package would hold them twice."""
    if "shared" not in recipe.device.artifacts or recipe.params_mode == "embed" or not helps(plan):
        return None
    toolchain = with_shared_memory(recipe.toolchain)
    if toolchain is None:
        return None
    progress("compile C", "for threads")
    folder = recipe.build / "threads"
    folder.mkdir()
    own = replace(recipe, device=toolchain.device, toolchain=toolchain, build=folder)
    source, exported = sources.shared_library(recipe.name, recipe.device.os)
    exported += sources.THREADS_EXPORTS
    objects = compile_sources(own, [source])
    progress("link", "for threads")
    output = recipe.bundle / recipe.layout.threads
    kernels = [recipe.bundle / name for name in recipe.kernels]
    toolchain.link_shared([objects[source], *kernels], output, exported=exported, soname=output.name)
    progress("audit", "for threads")
    report = audit(output, own.device, kind="shared", exported=exported)
    return ThreadsModule(
        path=recipe.layout.threads,
        nbytes=output.stat().st_size,
        threads=toolchain.device.threads,
        audit=report.to_json(),
    )
