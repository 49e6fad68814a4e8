"""TVM's description of a target: what its passes and its LLVM back end are told of a CPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm
from tvm.target.codegen import target_has_features

from edgepack.plan.target import CpuTarget

__all__ = ["has_feature", "llvm_target"]

#: LLVM holds VFMA for slow on Cortex-A7 and the like, and for hazardous behind another one, and then emits
#: twice the instructions: a multiplication, which needs a register more, and an addition.
ARM_FMA_FEATURES = ("-slowfpvfmx", "-vmlx-hazards")

#: With AVX-512 LLVM 22 may compile what its SLP vectoriser makes of comparisons to VMOVMSKPS, which reaches
#: registers 0 to 15, of a vector in one of 16 to 31. Kernels are vectors already.
WITHOUT_SLP = ["-vectorize-slp:bool=0"]


def llvm_target(target: CpuTarget, opt_level: int = 3) -> Any:
    """TVM's target for this CPU; ``opt_level``: LLVM's, 0 to 3."""
    spec: dict[str, Any] = {"kind": "llvm", "mtriple": target.triple, "opt-level": opt_level}
    if target.cpu:
        spec["mcpu"] = target.cpu
    features = list(target.features)
    if target.fma and target.arch.startswith(("arm", "thumb")) and target.pointer_bytes == 4:
        features += ARM_FMA_FEATURES
    if features:
        spec["mattr"] = features
    if target.abi:
        spec["mabi"] = target.abi
    if target.arch.startswith(("wasm", "thumb")):  # TVM guesses 128, and warns that it did
        spec["vector-width"] = target.vector_bits or 128
    made = tvm.target.Target(spec)
    if target.arch.startswith("x86_64") and target_has_features("avx512f", made):
        made = tvm.target.Target({**spec, "cl-opt": WITHOUT_SLP})
    return made


@lru_cache
def has_feature(target: CpuTarget, feature: str) -> bool:
    """Whether the CPU has a feature by LLVM's name of it ("avx2", "dotprod"), be it named or implied by the
    CPU's name; False for one of another architecture."""
    return bool(target_has_features(feature, llvm_target(target)))
