"""manifest.json: everything about a bundle, and the only file that a tool must read.

The models below are the schema; ``manifest.schema.json`` beside this module is generated from them
(``python -m edgepack.bundle.manifest``) and tested to be current. A field is never removed or changed in
meaning without a new ``schema_version``; new fields come with a default.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer

from edgepack.bundle.artifact_records import Artifact, ThreadsModule
from edgepack.bundle.fields import (
    CSymbol,
    DtypeName,
    Extent,
    Feature,
    FileName,
    Line,
    ModelName,
    OptionalWord,
    Sha256,
    Word,
    distinct,
)
from edgepack.bundle.layout import MANIFEST
from edgepack.bundle.memory_records import (
    ArenaSection,
    BufferRecord,
    Footprint,
    FootprintMemory,
    FootprintPart,
    Memory,
    Params,
    ParamsSection,
    without_empty,
)
from edgepack.bundle.paths import PathInBundle
from edgepack.bundle.quantised_record import QuantisedRecord
from edgepack.bundle.recorded_records import Recorded, RecordedTensor
from edgepack.bundle.records import Record, model_schema, read_versioned
from edgepack.bundle.structure import NestedRecord
from edgepack.config.models import CPU_MODEL, LONGEST_RUN, MACHINE, Name
from edgepack.render.names import model_symbol

__all__ = [
    "SCHEMA_FILE",
    "SCHEMA_VERSION",
    "ArenaSection",
    "Artifact",
    "BufferRecord",
    "DeviceRecord",
    "FileRecord",
    "Footprint",
    "FootprintMemory",
    "FootprintPart",
    "KernelRecord",
    "Manifest",
    "Memory",
    "ModelRecord",
    "OptionsRecord",
    "Params",
    "ParamsSection",
    "QuantisationRecord",
    "Recorded",
    "RecordedTensor",
    "RunnerRecord",
    "Runtime",
    "StepRecord",
    "Tensor",
    "ThreadsModule",
    "ToolchainRecord",
    "TunedRecord",
    "VariantRecord",
    "json_schema",
    "load_manifest",
]

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("manifest.schema.json")


class QuantisationRecord(Record):
    """What a tensor's integers mean: (x - zero_point) * scale."""

    scale: float = Field(gt=0, le=3.4028234663852886e38, description="exactly a float32")
    zero_point: int


class Tensor(Record):
    """An input or output: dense, row-major, little-endian."""

    name: str
    dtype: DtypeName
    shape: tuple[Extent, ...]
    nbytes: int = Field(ge=0, description="bytes of the dense tensor")
    quantisation: QuantisationRecord | None = Field(
        default=None, description="what its integers mean; left out where the model says it with no one scale"
    )

    @model_serializer(mode="wrap")
    def _without_meaning(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Tensors without one are what they were before."""
        data: dict[str, Any] = handler(self)
        if self.quantisation is None:
            del data["quantisation"]
        return data


class ModelRecord(Record):
    """The model file that the bundle was made from."""

    file: FileName = Field(description="file name, without its folder")
    sha256: Sha256 = Field(description="over the model file and its external data")
    shapes: dict[str, tuple[Extent, ...]] = Field(default={}, description="input shapes that were bound")
    dims: dict[str, Extent] = Field(default={}, description="symbolic dimensions that were bound")
    cut_inputs: tuple[str, ...] = Field(default=(), description="tensors that became inputs; none: its own")
    cut_outputs: tuple[str, ...] = Field(default=(), description="tensors that became outputs; none: its own")
    const: dict[str, tuple[int | float, ...]] = Field(
        default={}, description="inputs that became constants, and their numbers"
    )
    batch: int = Field(default=0, ge=0, description="what its batch of 1 was changed to; 0: as it is")
    maxima: dict[str, Extent] = Field(default={}, description="room for entries of results whose size varies")
    max_trips: int = Field(default=0, ge=0, description="trips that a loop may make; 0: the default")
    quantised: QuantisedRecord | None = Field(
        default=None, description="how it was quantised; null: it was not"
    )

    @model_serializer(mode="wrap")
    def _without_trips(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "max_trips")


class RunnerRecord(Record):
    """Which runner runs the bundle's program; its program, folders, options and place are this machine's."""

    name: Name = Field(default="native", description="a runner that the reader's machine has")
    cpu: str = Field(default="", pattern=CPU_MODEL, max_length=200, description="CPU that an emulator shows")
    machine: str = Field(default="", pattern=MACHINE, max_length=200, description="board that it emulates")
    timeout: int = Field(default=600, ge=1, le=LONGEST_RUN, description="seconds until a run is given up")


class DeviceRecord(Record):
    """What of the device's profile is needed to run the bundle and to know what it was built for."""

    name: Name
    description: str = ""
    arch: Word = Field(description="x86_64, aarch64, arm, ...")
    os: Word = Field(description="linux, macos, windows, ...")
    libc: OptionalWord = ""
    triple: Word = Field(description="LLVM triple of the kernels")
    cpu: OptionalWord = Field(default="", description="LLVM's, of the kernels; empty: the triple's baseline")
    features: tuple[Feature, ...] = Field(default=(), description="LLVM features of the kernels")
    cpu_requires: tuple[Word, ...] = Field(default=(), description="CPU features that the loader checks for")
    threads: int = Field(default=1, ge=1, description="threads of a session unless the caller chooses")
    runner: RunnerRecord = RunnerRecord()

    @property
    def bare_metal(self) -> bool:
        """Whether it has no operating system: its program is firmware."""
        return self.os == "none"


class TunedRecord(Record):
    """Schedules that were measured, among which kernels found theirs: those for the bundle's kinds of CPU."""

    choices: int = Field(ge=1, description="how many")
    sha256: Sha256 = Field(
        description="over their canonical JSON: sorted by cpu and group, keys sorted, no spaces"
    )


class OptionsRecord(Record):
    """What the kernels were chosen by."""

    optimize: Literal["latency", "size", "balanced"] = "latency"
    ram_budget: int | None = Field(
        default=None,
        description="RAM that firmware was to take at most, in bytes; left out if none was given",
    )
    tuned: TunedRecord | None = Field(
        default=None, description="schedules that were measured (docs/tuning.md); left out if none were given"
    )
    opt_level: Literal[0, 1, 2, 3] = Field(
        default=3, description="how much was done for speed; left out where it is 3, everything"
    )
    strict_math: bool = Field(
        default=False, description="no Winograd, no polynomials for libm's functions, denormals kept"
    )
    weights: Literal["float32", "float16"] | None = Field(
        default=None, description="what weights were rounded to; null: as the model has them"
    )
    precision: Literal["fp32", "tf32", "fp16"] | None = Field(
        default=None,
        description="fp16: a GPU keeps tensors as float16, a CPU multiplies in it; tf32: a GPU rounds "
        "factors of products; null: fp32",
    )

    @model_serializer(mode="wrap")
    def _without_the_default_level(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Bundles of level 3 say what they said when there was no other."""
        data: dict[str, Any] = handler(self)
        if self.opt_level == 3:
            del data["opt_level"]
        if self.ram_budget is None:
            del data["ram_budget"]
        if self.tuned is None:
            del data["tuned"]
        return data


class ToolchainRecord(Record):
    """The compiler of the C code and the linker."""

    name: Name
    family: Name
    version: Line


class Runtime(Record):
    """The part of the library that is not the model's kernels."""

    abi_version: int = Field(description="of include/edgepack/runtime.h")
    text_bytes: int | None = Field(default=None, description="machine code without the kernels', stripped")
    threads: int = Field(default=1, ge=1)
    heterogeneous: bool = Field(
        default=False, description="tasks are claimed from a counter, not split evenly"
    )


class KernelRecord(Record):
    """A compiled function and the schedule rule that made it."""

    symbol: CSymbol
    ops: tuple[str, ...] = ()
    rule: str
    parameters: dict[str, Any] = Field(default={})
    flops: int = 0
    bytes_moved: int = 0
    backend: Word = Field(
        default="cpu", description="what it runs on: cpu, or how the GPU is driven (opencl)"
    )


class StepRecord(Record):
    """One execution of a kernel, or a copy between the memories of CPU and GPU."""

    kernel: str = Field(description="its symbol; empty: a copy")
    tasks: int = Field(description="of a kernel on the GPU its work groups")
    nodes: tuple[str, ...] = ()
    copied: int = Field(default=0, ge=0, description="bytes that are copied to the GPU or from it")
    times: int = Field(
        default=1, ge=0, description="how often a run does it: a loop's trips, if their number is known"
    )

    @model_serializer(mode="wrap")
    def _without_once(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {name: value for name, value in data.items() if name != "times" or value != 1}


class VariantRecord(Record):
    """Kernels that the library holds for another kind of CPU, or for a GPU."""

    name: Name = Field(description="of the device that they were made for; of a GPU how it is driven")
    gpu: OptionalWord = Field(default="", description="how the GPU is driven (opencl); empty: for a CPU")
    cpu: OptionalWord = Field(default="", description="LLVM CPU name")
    features: tuple[Feature, ...] = Field(default=(), description="LLVM features")
    cpu_requires: tuple[Word, ...] = Field(default=(), description="CPU features that the loader checks for")
    memory: Memory
    kernels: Annotated[tuple[KernelRecord, ...], distinct("symbol")] = ()
    steps: tuple[StepRecord, ...] = ()
    flops: int = Field(default=0, description="floating point operations of one run")
    params_read: int = Field(default=0, ge=0, description="bytes of the params that these kernels read")
    params_own: int = Field(default=0, ge=0, description="of these, bytes that no others' kernels read")


class FileRecord(Record):
    """A file of the bundle (all but manifest.json and SHA256SUMS, which come last)."""

    path: PathInBundle
    nbytes: int = Field(ge=0)
    sha256: Sha256


class Manifest(Record):
    """The root of manifest.json."""

    schema_version: Literal[1] = 1
    name: ModelName = Field(description="C identifier: names the library, the header and the exported symbol")
    symbol: CSymbol = Field(description="the library's one exported symbol")
    edgepack: Word = Field(description="version of edgepack that made the bundle")
    model: ModelRecord
    device: DeviceRecord
    toolchain: ToolchainRecord
    options: OptionsRecord = OptionsRecord()
    tools: dict[Word, Line] = Field(default={}, description="versions of the packages that took part")
    inputs: Annotated[tuple[Tensor, ...], distinct("name")]
    outputs: Annotated[tuple[Tensor, ...], distinct("name")]
    nested: NestedRecord | None = Field(
        default=None, description="how the module's arguments and results hold these; null: it is unknown"
    )
    params: Params
    memory: Memory
    runtime: Runtime
    artifacts: Annotated[tuple[Artifact, ...], distinct("kind"), distinct("path")]
    web_threads: ThreadsModule | None = Field(
        default=None,
        description="of WebAssembly: the module `shared` again, for threads",
    )
    footprint: Footprint | None = Field(default=None, description="of firmware; other devices have none")
    kernels: Annotated[tuple[KernelRecord, ...], distinct("symbol")] = ()
    steps: tuple[StepRecord, ...] = ()
    flops: int = Field(default=0, description="floating point operations of one run")
    variants: Annotated[tuple[VariantRecord, ...], distinct("name")] = Field(
        default=(),
        description="of a library for several kinds of CPU: those that are tried before the device's own",
    )
    recorded: Recorded
    warnings: tuple[str, ...] = ()
    unconfined: Line = Field(
        default="", description="why the model was read unconfined; left out if it was not"
    )
    files: Annotated[tuple[FileRecord, ...], distinct("path")] = ()

    @model_serializer(mode="wrap")
    def _without_reasons(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "unconfined")

    @field_validator("symbol")
    @classmethod
    def _of_the_name(cls, value: str, info: ValidationInfo) -> str:
        if "name" in info.data and value != model_symbol(info.data["name"]):
            raise ValueError("it is another one than that of the name")
        return value

    def artifact(self, kind: str) -> Artifact | None:
        """The artifact of this kind, or None if the bundle has none."""
        return next((artifact for artifact in self.artifacts if artifact.kind == kind), None)

    @property
    def binaries(self) -> tuple[Artifact | ThreadsModule, ...]:
        """All that was linked: the artifacts, and the module with threads."""
        return self.artifacts if self.web_threads is None else (*self.artifacts, self.web_threads)

    def code(self, variant: str = "") -> Manifest | VariantRecord:
        """The record of the kernels, steps and memory of a variant; of the device's own by default."""
        return next((record for record in self.variants if record.name == variant), self)

    def to_json(self) -> str:
        """The file's text: sorted keys, so the same manifest gives the same bytes."""
        data = self.model_dump(mode="json")
        return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def load_manifest(root: Path) -> Manifest:
    """Read and check ``root/manifest.json``.

    Raises:
        ConfigError: as of :func:`edgepack.bundle.records.read_versioned`.
    """
    return read_versioned(
        root / MANIFEST,
        Manifest,
        SCHEMA_VERSION,
        again="Pack the model again.",
        maker="Use the edgepack that made the bundle, or pack the model again.",
    )


def json_schema() -> str:
    """The JSON schema of manifest.json, as ``manifest.schema.json`` holds it."""
    return model_schema(Manifest)


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json_schema(), encoding="utf-8", newline="\n")
