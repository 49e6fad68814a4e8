"""``edgepack verify``: lets a bundle's own program compare what it computes with the recorded outputs, at one
of the places that runners know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import CheckFailedError
from edgepack.options import RunOptions
from edgepack.runners.program import STATUSES, Result, number, run_program, threads_arguments, understood
from edgepack.text.spelling import spelled

__all__ = ["CornerCheck", "OutputCheck", "VariantCheck", "Verification", "verify", "verify_variant"]

#: The runner without an emulator.
NATIVE = "native"

#: Codes of a program that finds no GPU for a variant, and what the machine then lacks.
NO_GPU = {"EP_E_GPU_DRIVER": "a driver for a GPU", "EP_E_GPU_DEVICE": "a GPU that fits"}


@dataclass(frozen=True)
class OutputCheck:
    """How far one output is from the recorded one; it passes where |out-ref| <= atol + rtol*|ref|
    everywhere.

    Attributes:
        sqnr: signal-to-noise ratio in dB; infinite where it is exact, None where the program does not say.
        noise: how far off the recorded output is itself, at most, by the manifest; None where it is unknown.
    """

    name: str
    max_abs_err: float
    max_abs_ref: float
    atol: float
    rtol: float
    elements: int
    mismatches: int
    sqnr: float | None = None
    noise: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every element is within its tolerance."""
        return self.mismatches == 0

    @property
    def vacuous(self) -> bool:
        """Whether zeros would pass: the tolerance exceeds every recorded value, of which there is one."""
        return self.elements > 0 and self.atol + self.rtol * self.max_abs_ref > self.max_abs_ref


@dataclass(frozen=True)
class CornerCheck:
    """The result on corner data.

    Attributes:
        name: ``special`` (NaN, infinities), ``large`` (numbers) or ``ends`` (of ranges, and equal numbers).
    """

    name: str
    status: str
    outputs: tuple[OutputCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every output is within its tolerance, and the program has no other complaint."""
        return self.status == "ok" and all(output.ok for output in self.outputs)


@dataclass(frozen=True)
class VariantCheck:
    """The result for the kernels of one kind of CPU, or of a GPU, in a library that has several.

    Attributes:
        missing: what this machine lacks for them (``avx2,fma``, a GPU): they were not run.
    """

    name: str
    status: str
    outputs: tuple[OutputCheck, ...]
    missing: str = ""
    corners: tuple[CornerCheck, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The result of running a bundle on its recorded data.

    Attributes:
        status: what the program said, one of STATUSES.
        outputs: of the kernels that are taken where it ran.
        variants: of a library for several kinds of CPU, all of them.
        runner, where: what it ran on.
        threads: that computed; ``alone`` where it ran with one, too. Outputs are the worse of both.
        reference: what computed the recorded outputs.
        variant: of a library for several kinds of CPU, the name of the kernels that are taken.
        notes: what is to be known of the tolerances, in sentences.
        corners: results on corner data, of the kernels that are taken; older bundles have none.
        corners_left_out: by name, why there is no such data.
    """

    status: str
    runner: str
    where: str
    threads: int
    reference: str
    outputs: tuple[OutputCheck, ...]
    variants: tuple[VariantCheck, ...] = ()
    alone: bool = False
    variant: str = ""
    notes: tuple[str, ...] = ()
    corners: tuple[CornerCheck, ...] = ()
    corners_left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the bundle does on this device what it should."""
        outputs = [*self.outputs, *(output for variant in self.variants for output in variant.outputs)]
        corners = [*self.corners, *(corner for variant in self.variants for corner in variant.corners)]
        right = all(output.ok for output in outputs) and all(corner.ok for corner in corners)
        return self.status == "ok" and right

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the result does not show, in sentences."""
        names = dict.fromkeys(output.name for output in self.outputs if output.vacuous)
        return tuple(
            spelled(
                f"the check of output {name} shows nothing: its tolerance exceeds every recorded value, so "
                "zeros pass; record another input (pack --input, --seed)"
            )
            for name in names
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; floats that JSON cannot hold become texts (``"nan"``, ``"inf"``)."""
        data = {
            "ok": self.ok,
            **asdict(self),
            "message": STATUSES[self.status],
            "warnings": list(self.warnings),
        }
        records = [data, *data["variants"]]
        for record in [*records, *(corner for one in records for corner in one["corners"])]:
            record["outputs"] = [{k: _plain(v) for k, v in output.items()} for output in record["outputs"]]
        return data


def verify(root: Path, manifest: Manifest, options: RunOptions | None = None) -> Verification:
    """Run the bundle's program on the recorded inputs and let it compare with the recorded outputs; each of
    its variants that the CPU can run, for the machine that takes another one may not be here. Without an
    emulator it runs with one thread, too, unless a number was asked for: each number shares the work out in
    another way.

    Args:
        root: the bundle's folder.
        options: how and where the program is run; default on this machine, or by the device's own runner.

    Raises:
        CheckFailedError: the program crashed, refused to run, or printed no result. (A mismatch is a result.)
        ConfigError: the bundle has no program, or an argument is wrong.
        ToolchainError: the runner is missing, or the time is up.
    """
    options = options or RunOptions()
    arguments: list[str | Path] = ["verify", Path("test"), *threads_arguments(options.threads)]
    variants = _variants(root, manifest, options, arguments)
    selected, result = run_program(root, manifest, arguments, options)
    with understood():
        ran_with = int(result["threads"])
        taken = str(result.get("variant", ""))
    outputs, statuses = _outputs(manifest, result), [v.status for v in variants] + [result["status"]]
    alone = options.threads is None and ran_with > 1 and selected.name == NATIVE
    if alone:
        _, result = run_program(root, manifest, ["verify", Path("test"), *threads_arguments(1)], options)
        outputs = tuple(map(_worse, outputs, _outputs(manifest, result)))
        statuses.append(result["status"])
    corners = _corners(root, manifest, options)
    statuses += [corner.status for corner in (*corners, *(c for one in variants for c in one.corners))]
    return Verification(
        next((status for status in statuses if status != "ok"), "ok"),
        selected.name,
        selected.where,
        ran_with,
        manifest.recorded.reference,
        outputs,
        tuple(variants),
        alone,
        taken,
        manifest.recorded.notes,
        corners,
        manifest.recorded.corners_left_out,
    )


def _variants(
    root: Path, manifest: Manifest, options: RunOptions, arguments: Sequence[str | Path]
) -> list[VariantCheck]:
    """The results of each variant of a library for several kinds of CPU; none of another one."""
    variants: list[VariantCheck] = []
    if not manifest.variants:
        return variants
    _, info = run_program(root, manifest, ["info"], options)
    with understood():
        listed = {str(one["name"]): str(one["missing_cpu_features"]) for one in info["variants"]}
        if unknown := set(listed) - {manifest.device.name, *(one.name for one in manifest.variants)}:
            raise ValueError(f"the bundle has no variant {min(unknown)[:80]!r}")
    for name, missing in listed.items():
        if missing:
            variants.append(VariantCheck(name, "ok", (), missing))
            continue
        its_own = [*arguments, "--variant", name]
        _, result = run_program(root, manifest, its_own, options, refusals=NO_GPU)
        if result.get("code") in NO_GPU:
            variants.append(VariantCheck(name, "ok", (), NO_GPU[str(result["code"])]))
            continue
        outputs = _outputs(manifest, result)
        corners = _corners(root, manifest, options, "--variant", name)
        variants.append(VariantCheck(name, result["status"], outputs, "", corners))
    return variants


def _corners(root: Path, manifest: Manifest, options: RunOptions, *more: str) -> tuple[CornerCheck, ...]:
    """The results on the bundle's corner data, with ``more`` arguments."""
    found = []
    for corner in manifest.recorded.corners:
        arguments: list[str | Path] = [
            "verify",
            Path("test") / corner.name,
            *threads_arguments(options.threads),
            *more,
        ]
        _, result = run_program(root, manifest, arguments, options)
        found.append(CornerCheck(corner.name, result["status"], _outputs(manifest, result)))
    return tuple(found)


def verify_variant(root: Path, manifest: Manifest, variant: str, options: RunOptions) -> bool:
    """Whether one variant of a library for several kinds of CPU computes what was recorded, with all threads
    and with one. Raises as :func:`verify` does."""
    own = threads_arguments(options.threads)
    for threads in [own] if options.threads is not None else [own, threads_arguments(1)]:
        arguments: list[str | Path] = ["verify", Path("test"), *threads, "--variant", variant]
        _, result = run_program(root, manifest, arguments, options)
        if result["status"] != "ok":
            return False
    return True


def _worse(one: OutputCheck, other: OutputCheck) -> OutputCheck:
    """The check of two runs' same output that has more mismatches, or else the larger error."""
    return max(one, other, key=lambda check: (check.mismatches, check.max_abs_err))


def _outputs(manifest: Manifest, result: Result) -> tuple[OutputCheck, ...]:
    noise = {tensor.name: tensor.noise for tensor in manifest.recorded.outputs}
    with understood():
        outputs = tuple(
            OutputCheck(
                name=str(output["name"]),
                max_abs_err=number(output["max_abs_err"]),
                max_abs_ref=number(output["max_abs_ref"]),
                atol=number(output["atol"]),
                rtol=number(output["rtol"]),
                elements=int(output["elements"]),
                mismatches=int(output["mismatches"]),
                sqnr=_sqnr(output),
                noise=noise.get(str(output["name"])),
            )
            for output in result["outputs"]
        )
    if len(outputs) != len(manifest.outputs):
        raise CheckFailedError(
            f"The program checked {len(outputs)} outputs, the manifest has {len(manifest.outputs)}."
        )
    return outputs


def _sqnr(output: Mapping[str, Any]) -> float | None:
    """What programs say since they add up squares; None of those before."""
    noise, signal = (number(output.get(name)) for name in ("sum_sq_err", "sum_sq_ref"))
    if not (math.isfinite(noise) and math.isfinite(signal) and noise >= 0 and signal >= 0):
        return None
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 and signal / noise > 0 else -math.inf


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
