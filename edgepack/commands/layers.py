"""Where a bundle's program loses accuracy: its model is packed once more with the tensors between its kernels
as outputs, and each of them compared with the reference's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import find_bundle
from edgepack.bundle.manifest import Manifest, StepRecord, VariantRecord, load_manifest
from edgepack.bundle.paths import inside
from edgepack.commands.model_file import check_model_file
from edgepack.commands.pack import pack_model
from edgepack.commands.packed_again import bundle_device, bundle_toolchain, options_of
from edgepack.errors import ConfigError
from edgepack.options import DEFAULT_TIMEOUT, PackOptions, RunOptions
from edgepack.pipeline.compile import identify
from edgepack.pipeline.requested import layers_job
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.comparison import plain_number
from edgepack.plan.layers import InnerTensor, chosen_tensors
from edgepack.runners.verify import OutputCheck, Verification, verify
from edgepack.system.confinement import Access
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder
from edgepack.text.spelling import spelled

__all__ = ["LayerCheck", "LayersVerification", "verify_layers"]

#: What a model that the pack itself quantised is made by.
_QUANTISED_HINT = (
    "Its model was quantised as it was packed: give what `edgepack quantize` makes of the float model with "
    "the same data and options."
)


@dataclass(frozen=True)
class LayerCheck:
    """A tensor between two kernels, as the device's program computes it, beside the reference's.

    Attributes:
        node, operator: of the model, whose result it is.
        tensor: its name.
        kernel: of the bundle that writes it, without what all of them begin with.
        rule: that made the kernel.
        fused_alike: whether the program that was run here has a kernel of the same nodes; where one has
            others, the tensor is computed by other kernels than in the bundle.
        dtype: of its elements.
        check: how far it is from the reference, in steps for integers, and what it may be off by.
    """

    node: str
    operator: str
    tensor: str
    kernel: str
    rule: str
    fused_alike: bool
    dtype: str
    check: OutputCheck

    @property
    def steps_off(self) -> float | None:
        """How many steps a tensor of integers is off at most; None for floats."""
        return None if "float" in self.dtype else self.check.max_abs_err


@dataclass(frozen=True)
class LayersVerification:
    """A bundle's program with the tensors between its kernels, on its recorded inputs, beside the reference.

    Attributes:
        layers: in the order in which the bundle's kernels compute them, outputs among them.
        bundle: the verification of the bundle as it is.
        verification: that of the program that was run for it, whose outputs these tensors are.
        kernels: how many steps the bundle has.
        warnings: a sentence each.
    """

    layers: tuple[LayerCheck, ...]
    bundle: Verification
    verification: Verification
    kernels: int
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the bundle does what it should, and each tensor is within its tolerance."""
        return self.bundle.ok and self.verification.ok

    @property
    def first_beyond(self) -> LayerCheck | None:
        """The first tensor that is not within its tolerance."""
        return next((one for one in self.layers if not one.check.ok), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data; floats that JSON cannot hold become texts (``"inf"``)."""
        layers = []
        for one in self.layers:
            data = asdict(one)
            check = {name: plain_number(value) for name, value in data.pop("check").items()}
            layers.append({**data, "steps_off": plain_number(one.steps_off), **check, "name": one.node})
        first = self.first_beyond
        return {
            "ok": self.verification.ok,
            "where": self.verification.where,
            "reference": self.verification.reference,
            "kernels": self.kernels,
            "first_beyond": None if first is None else first.tensor,
            "layers": layers,
            "warnings": list(self.warnings),
        }


def verify_layers(
    bundle: Path, model: Path, options: RunOptions, progress: Progress | None
) -> LayersVerification:
    """Compare layer by layer; arguments and errors as for :func:`edgepack.verify_layers`."""
    root = find_bundle(bundle)
    check_sums(root, manifest := load_manifest(root))
    _check_kind(root, manifest)
    check_model_file(model, "Give the file that the bundle was packed from.")
    as_it_is = verify(root, manifest, options)
    device = bundle_device(root, manifest, options.device)
    chosen = replace(
        options_of(manifest), toolchain=bundle_toolchain(root, manifest, device, None), force=True
    )
    if manifest.model.quantised is not None:  # its sizes are static, and it is cut already
        chosen = replace(chosen, shapes=None, dims=None, const=None, cut_inputs=(), cut_outputs=())
    stages = Stages(progress)
    with stages.within(DEFAULT_TIMEOUT, f"Looking into {manifest.name}"), temporary_folder() as folder:
        inner = _inner_tensors(root, manifest, model, chosen, folder, stages)
        found = chosen_tensors([step.nodes for step in _steps(manifest.code(as_it_is.variant))], inner)
        own = [tensor.name for tensor in manifest.outputs]
        if not found.keys() - {*own}:
            raise ConfigError(
                f"{root} has no tensor between its kernels that {model} computes too.",
                hint="`edgepack verify BUNDLE` compares the outputs; nodes of the model need names.",
            )
        chosen = replace(
            chosen,
            cut_outputs=[*own, *(name for name in found if name not in own)],
            inputs=_recorded_inputs(root, manifest, folder),
        )
        pack_model(model, device, folder / "opened", chosen, stages)
        opened = load_manifest(folder / "opened")
        stages("verify", manifest.name)
        result = verify(folder / "opened", opened, options)
    return _compared(manifest, opened, found, as_it_is, result)


def _check_kind(root: Path, manifest: Manifest) -> None:
    """Raise ConfigError for a bundle whose tensors cannot become outputs."""
    custom = any(file.path.startswith("src/custom/") for file in manifest.files)
    for given, what in (
        (custom, "custom operators"),
        (manifest.model.maxima, "results whose size the data decide (--max)"),
        (manifest.model.batch > 1, "a batch that was changed (--set-batch)"),
    ):
        if given:
            raise ConfigError(
                f"{root} has {what}: it cannot be looked into layer by layer.",
                hint="`edgepack verify BUNDLE` compares its outputs.",
            )


def _inner_tensors(
    root: Path, manifest: Manifest, model: Path, options: PackOptions, folder: Path, stages: Stages
) -> list[InnerTensor]:
    """What can be looked at in the bundle's model. ConfigError for another model."""
    quantised = manifest.model.quantised
    (place := folder / "read").mkdir()
    with Worker(progress=stages, access=Access((model.absolute(),), (folder.absolute(),))) as worker:
        stages("read model")
        found = identify(model, worker, place)
        if found.digest != (manifest.model.sha256 if quantised is None else quantised.sha256):
            raise ConfigError(
                f"{root} was not packed from {model}: its contents are others.",
                hint=_QUANTISED_HINT
                if quantised
                else f"Give the file that it was packed from, {manifest.model.file}.",
            )
        worker.run(replace(layers_job(model, options), frontend=found.frontend, data=found.data), place)
    data = json.loads((place / "tensors.json").read_text(encoding="utf-8"))
    return [InnerTensor.from_json(one) for one in data]


def _recorded_inputs(root: Path, manifest: Manifest, folder: Path) -> dict[str, Path]:
    """The bundle's recorded inputs as ``.npy`` files."""
    files = {}
    for index, tensor in enumerate(manifest.recorded.inputs):
        if tensor.dtype == "bfloat16":  # which NumPy's files do not have
            continue
        data = np.frombuffer(inside(root, tensor.file).read_bytes(), np.dtype(tensor.dtype).newbyteorder("<"))
        files[tensor.name] = folder / f"input_{index}.npy"
        np.save(files[tensor.name], data.astype(tensor.dtype).reshape(tensor.shape))
    return files


def _steps(record: Manifest | VariantRecord) -> list[StepRecord]:
    """The steps that run a kernel."""
    return [step for step in record.steps if step.kernel]


def _fused(step: StepRecord, record: Manifest | VariantRecord) -> tuple[frozenset[str], tuple[str, ...]]:
    """The nodes and operations that a step's kernel computes."""
    ops = next((kernel.ops for kernel in record.kernels if kernel.symbol == step.kernel), ())
    return frozenset(step.nodes), ops


def _compared(
    manifest: Manifest,
    opened: Manifest,
    found: Mapping[str, tuple[InnerTensor, int]],
    bundle: Verification,
    result: Verification,
) -> LayersVerification:
    record = manifest.code(bundle.variant)
    checks = {check.name: check for check in result.outputs}
    dtypes = {tensor.name: tensor.dtype for tensor in opened.outputs}
    now = opened.code(result.variant)
    alike = {_fused(step, now) for step in _steps(now)}
    steps = _steps(record)
    rules = {kernel.symbol: kernel.rule for kernel in record.kernels}
    prefix = f"edgepack_{manifest.name}_"
    layers = tuple(
        LayerCheck(
            node=one.node,
            operator=one.operator,
            tensor=tensor,
            kernel=steps[index].kernel.removeprefix(prefix),
            rule=rules.get(steps[index].kernel, ""),
            fused_alike=_fused(steps[index], record) in alike,
            dtype=dtypes[tensor],
            check=checks[tensor],
        )
        for tensor, (one, index) in found.items()
    )
    other = sum(not one.fused_alike for one in layers)
    warnings = []
    if other:
        warnings.append(
            f"{other} of the {len(steps)} kernels are fused otherwise where tensors between them are kept."
        )
    return LayersVerification(layers, bundle, result, len(steps), (*map(spelled, warnings), *result.warnings))
