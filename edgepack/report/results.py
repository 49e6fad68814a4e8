"""What ``edgepack bench --json`` and ``edgepack verify --json`` said, read back and compared with the
bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgepack.bundle.fields import OptionalName
from edgepack.bundle.manifest import Manifest
from edgepack.bundle.records import read_json, validated
from edgepack.config.models import Name
from edgepack.errors import ConfigError

__all__ = ["BenchResult", "OutputResult", "VerifyResult", "read_bench", "read_verification"]

#: JSON has no NaN and no infinity: ``verify --json`` writes them as texts.
_Number = Annotated[float, Field(ge=0)] | Literal["nan", "inf", "-inf"]
_Positive = Annotated[float, Field(ge=0)]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


_Count = Annotated[int, Field(ge=0)]


class _Counted(_Result):
    """Instructions of firmware, as :class:`edgepack.runners.instructions.Instructions`."""

    run: _Count
    load: _Count
    steps: tuple[_Count, ...]


class BenchResult(_Result):
    """Times of a run, those of whole runs in ms, those of steps in us; or its instructions, and no times."""

    where: str
    real_speed: bool
    threads: int = Field(ge=1)
    runs_ms: tuple[_Positive, ...] = ()
    min_ms: _Positive = 0.0
    median_ms: _Positive = 0.0
    p90_ms: _Positive = 0.0
    p99_ms: _Positive = 0.0
    load_ms: _Positive = 0.0
    first_result_ms: _Positive = 0.0
    peak_rss_bytes: int = Field(default=0, ge=0)
    steps_us: tuple[_Positive, ...] = ()
    variant: OptionalName = ""
    instructions: _Counted | None = None

    @model_validator(mode="after")
    def _measured(self) -> BenchResult:
        times = self.model_fields_set >= {"runs_ms", "min_ms", "median_ms", "p90_ms", "p99_ms", "load_ms"}
        if self.instructions is None and not (times and self.runs_ms):
            raise ValueError("it has neither times nor instructions")
        return self


class OutputResult(_Result):
    """How far one output is from the recorded one."""

    name: str
    max_abs_err: _Number
    max_abs_ref: _Number
    atol: _Positive
    rtol: _Positive
    elements: int = Field(ge=0)
    mismatches: int = Field(ge=0)

    @property
    def of_tolerance(self) -> float | None:
        """The largest error as a fraction of what is allowed at the largest recorded value; None where one
        of them is no finite number, or nothing is allowed."""
        if isinstance(self.max_abs_err, str) or isinstance(self.max_abs_ref, str):
            return None
        allowed = self.atol + self.rtol * self.max_abs_ref
        return self.max_abs_err / allowed if allowed > 0 else None


class _Variant(_Result):
    name: Name
    outputs: tuple[OutputResult, ...] = ()
    missing: str = ""


class VerifyResult(_Result):
    """What a verification found."""

    ok: bool
    where: str
    threads: int = Field(ge=1)
    reference: str
    outputs: tuple[OutputResult, ...]
    variants: tuple[_Variant, ...] = ()

    @property
    def checks(self) -> list[tuple[str, OutputResult]]:
        """Each output that was compared, with the kernels' variant; "" where there is one kind only."""
        found = [(one.name, output) for one in self.variants for output in one.outputs]
        return found or [("", output) for output in self.outputs]


_R = TypeVar("_R", bound=_Result)


def read_bench(source: Path | Mapping[str, Any], manifest: Manifest) -> BenchResult:
    """The result of ``edgepack bench --json``: a file, or plain data.

    Raises:
        ConfigError: it is none, or of another bundle: it has another number of steps.
    """
    result = _read(source, BenchResult, "bench")
    names = [record.name for record in manifest.variants]
    if result.variant and result.variant not in {*names, manifest.device.name}:
        raise ConfigError(
            f"The measurement is of kernels for {result.variant[:60]!r}, which the bundle has not.",
            hint="Measure this bundle: `edgepack bench BUNDLE --profile --json`.",
        )
    steps = len(manifest.code(result.variant).steps)
    measured = result.steps_us if result.instructions is None else result.instructions.steps
    if measured and len(measured) != steps:
        raise ConfigError(
            f"The measurement has {len(measured)} steps and the bundle {steps}: it is another's.",
            hint="Measure this bundle: `edgepack bench BUNDLE --profile --json`.",
        )
    return result


def read_verification(source: Path | Mapping[str, Any], manifest: Manifest) -> VerifyResult:
    """The result of ``edgepack verify --json``: a file, or plain data.

    Raises:
        ConfigError: it is none, or of another bundle: its outputs have other names.
    """
    result = _read(source, VerifyResult, "verify")
    if [output.name for output in result.outputs] != [tensor.name for tensor in manifest.outputs]:
        raise ConfigError(
            "The verification has other outputs than the bundle: it is another's.",
            hint="Verify this bundle: `edgepack verify BUNDLE --json`.",
        )
    names = {manifest.device.name, *(record.name for record in manifest.variants)}
    if others := [one.name for one in result.variants if one.name not in names]:
        raise ConfigError(
            f"The verification is of kernels for {others[0][:60]!r}, which the bundle has not.",
            hint="Verify this bundle: `edgepack verify BUNDLE --json`.",
        )
    return result


def _read(source: Path | Mapping[str, Any], kind: type[_R], command: str) -> _R:
    hint = f"Give the result of `edgepack {command} BUNDLE --json`."
    where = str(source) if isinstance(source, Path) else "The result"
    data = read_json(source, hint) if isinstance(source, Path) else source
    return validated(data, kind, f"{where} is no result of `edgepack {command}`", hint)
