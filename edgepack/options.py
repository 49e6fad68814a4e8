"""What a user may choose when a model is packed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from edgepack.plan.target import Optimize
from edgepack.plan.types import ParamsMode

__all__ = ["PackKeywords", "PackOptions", "PathLike"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class PackOptions:
    """What a user may choose for a bundle.

    Attributes:
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
        force: replace a bundle at the output.
        cache: look in, and add to, the cache of compiled models.
        timeout: seconds that each step of the compilation may take; default an hour.
    """

    name: str | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    dims: Mapping[str, int] | None = None
    toolchain: str | None = None
    sdk: PathLike | None = None
    params: ParamsMode | None = None
    inputs: Mapping[str, PathLike] | None = None
    seed: int = 0
    optimize: Optimize = "latency"
    strict_math: bool = False
    force: bool = False
    cache: bool = True
    timeout: float | None = None


class PackKeywords(TypedDict, total=False):
    """The fields of :class:`PackOptions` as keyword arguments."""

    name: str | None
    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    toolchain: str | None
    sdk: PathLike | None
    params: ParamsMode | None
    inputs: Mapping[str, PathLike] | None
    seed: int
    optimize: Optimize
    strict_math: bool
    force: bool
    cache: bool
    timeout: float | None
