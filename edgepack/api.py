"""edgepack from Python: what the commands do, without printing.

bundle = edgepack.pack("resnet18.onnx", "raspberrypi4", "dist/resnet18", shapes={"input": (1, 3, 224, 224)})
bundle.verify()
with edgepack.load("dist/resnet18-host") as session:
    outputs = session.run({"input": x})
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import check_name, default_name, find_bundle
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.target import CpuTarget, Optimize
from edgepack.plan.types import ParamsMode
from edgepack.progress import Progress

if TYPE_CHECKING:
    from edgepack.config.device import Device
    from edgepack.pipeline.job import Job
    from edgepack.runners.loader import Measurement, Verification
    from edgepack.session import Session

__all__ = ["Bundle", "load", "pack"]

PathLike = str | os.PathLike[str]


class Bundle:
    """A bundle on disk.

    Args:
        path: its folder.
        stage_seconds: how long each stage took, where it was packed just now.

    Raises:
        ConfigError: there is no bundle, or its manifest cannot be read.
    """

    def __init__(self, path: PathLike, *, stage_seconds: Mapping[str, float] | None = None) -> None:
        self.path = find_bundle(Path(path))
        self.manifest: Manifest = load_manifest(self.path)
        self.stage_seconds = dict(stage_seconds or {})

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r})"

    def check_sums(self) -> int:
        """Compare all files with SHA256SUMS; returns how many. Raises CheckFailedError if one differs."""
        return check_sums(self.path)

    def verify(
        self, *, runner: str | None = None, threads: int | None = None, timeout: float | None = None
    ) -> Verification:
        """Check the files, then run the bundle's own program on the recorded data.

        Args:
            runner: where to run it; default this machine, or the device's emulator.
            threads: default what the device's profile says.
            timeout: seconds.

        Raises:
            CheckFailedError: a file is damaged, or the program refuses or crashes. A mismatch is a result.
            ToolchainError: there is no runner for the device here, or the time is up.
        """
        from edgepack.runners import loader

        self.check_sums()
        return loader.verify(self.path, self.manifest, runner=runner, threads=threads, timeout=timeout)

    def bench(
        self,
        *,
        runner: str | None = None,
        threads: int | None = None,
        runs: int = 50,
        warmup: int = 5,
        profile: bool = False,
        variant: str | None = None,
        timeout: float | None = None,
    ) -> Measurement:
        """Let the bundle's own program measure itself. Errors as in :meth:`verify`."""
        from edgepack.runners import loader

        return loader.bench(
            self.path,
            self.manifest,
            runner=runner,
            threads=threads,
            runs=runs,
            warmup=warmup,
            profile=profile,
            variant=variant,
            timeout=timeout,
        )

    def inspect(self) -> dict[str, Any]:
        """The manifest as plain data (what ``edgepack inspect --json`` prints)."""
        return self.manifest.model_dump(mode="json")

    def load(self, *, threads: int | None = None) -> Session:
        """Open it in this process: see :func:`load`."""
        return load(self, threads=threads)


def load(bundle: Bundle | PathLike, *, threads: int | None = None) -> Session:
    """Open a bundle for this machine through its C ABI.

    Args:
        bundle: the bundle or its folder.
        threads: how many compute; default what the device's profile says.

    Returns:
        a session: ``outputs = session.run({"input": array})``. Close it, or use it in a ``with`` statement.
    """
    from edgepack.session import Session

    return Session(bundle.path if isinstance(bundle, Bundle) else bundle, threads=threads)


def pack(
    model: PathLike,
    device: str | Device = "host",
    output: PathLike | None = None,
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    toolchain: str | None = None,
    sdk: PathLike | None = None,
    params: ParamsMode | None = None,
    inputs: Mapping[str, PathLike] | None = None,
    seed: int = 0,
    optimize: Optimize = "latency",
    strict_math: bool = False,
    force: bool = False,
    cache: bool = True,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Compile a model into a bundle.

    Args:
        model: an ONNX file.
        device: a device's name, a path to its YAML file, or the device.
        output: the bundle's folder; default ``<name>-<device>`` in the working directory.
        name: C identifier that names library, header and symbol; default from the file's name.
        shapes: an input's name to its shape, where the model leaves it open.
        dims: a symbolic dimension's name to its value.
        toolchain: default the device's.
        sdk: folder of the toolchain's SDK (the Android NDK); default as the toolchain finds it.
        params: where the params go: a file of the bundle that the library maps, inside the library, or a file
            that the application hands in. Default what the device says.
        inputs: an input's name to a .npy file for the recorded data; the rest is drawn from ``seed``.
        seed: of the recorded inputs.
        optimize: "latency" takes whatever runs fastest, even where it needs more params (Winograd); "size"
            leaves params as large as the model's; "balanced" lets only small ones grow.
        strict_math: neither Winograd convolutions nor polynomials in place of libm's functions.
        force: replace a bundle at ``output``.
        cache: look in, and add to, the cache of compiled models.
        timeout: seconds that the compilation of the kernels may take.
        progress: called with a stage's name and a detail.

    Raises:
        ConfigError, ModelError, ToolchainError, CheckFailedError: see edgepack.errors. Nothing is left
        behind.
    """
    from edgepack.bundle.writer import check_destination, workplace
    from edgepack.config.device import load_device, load_variant
    from edgepack.pipeline.worker_process import DEFAULT_TIMEOUT
    from edgepack.toolchains import resolve

    stages = _Stages(progress)
    model = Path(model)
    if not model.is_file():
        what = "is a folder" if model.is_dir() else "does not exist"
        raise ModelError(f"{model} {what}.", hint="Give the path of an ONNX file.")
    profile = load_device(device) if isinstance(device, str) else device
    compiler = resolve(profile, toolchain, sdk)
    name = check_name(name) if name is not None else default_name(model)
    mode = params or profile.params
    if mode not in ("file", "embed", "caller"):
        raise ConfigError(f"There is no way {mode!r} to ship params.", hint="Use file, embed or caller.")
    if profile.os == "none":
        from edgepack.bundle.firmware import project as firmware

        firmware.check_options(profile, mode)
    destination = Path(output) if output is not None else Path(f"{name}-{profile.name}")
    destination = destination.resolve()
    check_destination(destination, force=force, model=model)
    if optimize not in ("latency", "size", "balanced"):
        raise ConfigError(f"No kernels are made for {optimize!r}.", hint="Use latency, size or balanced.")
    devices = [*(load_variant(profile, other) for other in profile.variants), profile]
    jobs = [
        _job(
            model,
            name,
            replace(one.cpu_target(), threads=profile.threads, optimize=optimize, strict_math=strict_math),
            prefix=f"edgepack_{name}_" if one is profile else f"edgepack_{name}_v{number}_",
            shapes=shapes or {},
            dims=dims or {},
            inputs=inputs or {},
            seed=seed,
        )
        for number, one in enumerate(devices)
    ]
    stages("find the toolchain")
    version = compiler.version()  # one that is missing is found out before the model is compiled, not after
    with workplace(destination) as place, compiler.preparation():
        from edgepack.bundle.assemble import assemble
        from edgepack.bundle.manifest import ModelRecord, OptionsRecord
        from edgepack.bundle.recipe import Compiled, Recipe
        from edgepack.pipeline.cache import tool_versions

        compiled = []
        for one, job in zip(devices, jobs, strict=True):
            folder = place.job if len(jobs) == 1 else place.job / one.name
            folder.mkdir(exist_ok=True)
            digest = _compile(job, folder, stages, cache, timeout or DEFAULT_TIMEOUT)
            compiled.append(Compiled(one, folder))
        record = ModelRecord(
            file=model.name,
            sha256=digest,
            shapes={key: tuple(value) for key, value in sorted((shapes or {}).items())},
            dims=dict(sorted((dims or {}).items())),
        )
        recipe = Recipe(
            name=name,
            model=record,
            device=profile,
            compiled=tuple(compiled),
            toolchain=compiler,
            toolchain_version=version,
            params_mode=mode,
            options=OptionsRecord(optimize=optimize, strict_math=strict_math),
            build=place.build,
            bundle=place.bundle,
            tools=tool_versions(),
        )
        assemble(recipe, stages)
        place.publish(force=force)
    stages.end()
    return Bundle(destination, stage_seconds=stages.seconds)


class _Stages:
    """Passes progress on, and measures."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self._stage = ""
        self._since = time.monotonic()

    def __call__(self, stage: str, detail: str = "") -> None:
        if stage != self._stage:
            self.end()
            self._stage = stage
        if self.progress is not None:
            self.progress(stage, detail)

    def end(self) -> None:
        now = time.monotonic()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._since = now
        self._stage = ""


def _job(
    model: Path,
    name: str,
    target: CpuTarget,
    *,
    prefix: str,
    shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    inputs: Mapping[str, PathLike],
    seed: int,
) -> Job:
    from edgepack.pipeline.job import Job

    paths = {key: Path(value) for key, value in inputs.items()}
    for key, path in paths.items():
        if not path.is_file():
            raise ConfigError(f"The file {path} for input {key} does not exist.", hint="Give a .npy file.")
    return Job(
        model=model,
        name=name,
        target=target,
        symbol_prefix=prefix,
        shapes={key: tuple(int(extent) for extent in shape) for key, shape in shapes.items()},
        dims=dict(dims),
        seed=seed,
        inputs=paths,
    )


def _compile(job: Job, directory: Path, stages: _Stages, use_cache: bool, timeout: float) -> str:
    """Fill ``directory`` from the cache or by the worker; returns the model's digest."""
    from edgepack.compiler.frontend.summary import digest
    from edgepack.pipeline.cache import Cache, job_key
    from edgepack.pipeline.worker_process import run_worker

    stages("read model")
    model_digest = digest(job.model)
    key = job_key(job, model_digest)
    store = Cache() if use_cache else None
    if store is not None:
        stages("look in the cache")
        if store.fetch(key, directory):
            return model_digest
    stages("start the compiler")
    run_worker(job, directory, timeout=timeout, progress=stages)
    if store is not None:
        store.store(key, directory)
    return model_digest
