"""The functions of libm that firmware brings where its compiler has none: right, and right at the ends."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.resources import TEMPLATES
from workbench.mini import WARNINGS, run

SOURCE = TEMPLATES / "firmware" / "library.c"

ENDS = [0.0, 1e-45, 1e-30, 9.9e-5, 1e-4, 0.5, 1.0, 1.5, 2.5, 19.9, 20.1, 88.0, 104.0, 1e7, 8388607.5, 3e38]
SPECIAL = np.array([*ENDS, *(-x for x in ENDS), np.inf, -np.inf, np.nan], np.float32)

#: name -> what it is in float64
UNARY: dict[str, Callable[[Any], Any]] = {
    "acosf": np.arccos,
    "acoshf": np.arccosh,
    "asinf": np.arcsin,
    "asinhf": np.arcsinh,
    "atanf": np.arctan,
    "atanhf": np.arctanh,
    "coshf": np.cosh,
    "erff": np.vectorize(erf, otypes=[np.float64]),
    "expm1f": np.expm1,
    "log1pf": np.log1p,
    "nearbyintf": np.rint,
    "rintf": np.rint,
    "roundevenf": np.rint,
    "sinhf": np.sinh,
    "tanhf": np.tanh,
}
RANGES = [(-1.0, 1.0), (-1e-3, 1e-3), (-10.0, 10.0), (-90.0, 90.0), (-1e9, 1e9), (1.0, 1.001)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Built as where there is no math.h: only with the compiler's own headers."""
    output = tmp_path_factory.mktemp("library") / "library.so"
    headers = run(["gcc", "-print-file-name=include"]).strip()
    command = ["gcc", *WARNINGS, "-O2", "-ffreestanding", "-nostdinc", "-isystem", headers]
    run([*command, "-shared", "-fPIC", "-Wl,-Bsymbolic", SOURCE, "-o", output, "-lm"])
    return ctypes.CDLL(str(output))


def evaluate(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = library[name]
    function.restype = ctypes.c_float
    function.argtypes = [ctypes.c_float] * len(arguments)
    return np.array([function(*map(float, xs)) for xs in zip(*arguments, strict=True)], np.float32)


def check(got: Any, expected: Any) -> None:
    """Within one unit in the last place, zeros with their sign, infinities and NaN where they belong."""
    with np.errstate(all="ignore"):
        want = expected.astype(np.float32)
        off = np.abs(got.astype(np.float64) - expected)
        near = off <= np.spacing(np.abs(want)).astype(np.float64)
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    wrong = ~(same | (near & np.isfinite(want) & (want != 0)))
    assert not wrong.any(), (np.flatnonzero(wrong)[:5], got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("name", UNARY)
def test_function_is_right_to_the_last_bit_but_one(name: str, library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    xs = np.concatenate([SPECIAL, *(rng.uniform(*limits, 2000).astype(np.float32) for limits in RANGES)])
    with np.errstate(all="ignore"):
        check(evaluate(library, name, xs), UNARY[name](xs.astype(np.float64)))


@pytest.mark.parametrize(("name", "reference"), [("powf", np.power), ("atan2f", np.arctan2)])
def test_function_of_two_numbers_is_right(name: str, reference: Any, library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    pairs = np.array(list(itertools.product([*SPECIAL, 3.0, -3.0, 2.0, -2.0], repeat=2)), np.float32)
    more = np.column_stack([rng.uniform(0, 10, 4000), rng.uniform(-8, 8, 4000)]).astype(np.float32)
    a, b = np.concatenate([pairs, more]).T
    with np.errstate(all="ignore"):
        check(evaluate(library, name, a, b), reference(a.astype(np.float64), b.astype(np.float64)))


def test_ldexpf_is_exact(library: ctypes.CDLL) -> None:
    function = library.ldexpf
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_int]
    for x, power in itertools.product([0.0, 1.5, -3.25, 1e-40, np.inf], [0, 1, -1, 100, -140, 1000, -1000]):
        with np.errstate(all="ignore"):
            assert function(x, power) == np.float32(np.ldexp(np.float64(np.float32(x)), power))


def test_it_is_empty_where_the_compiler_has_a_library(tmp_path: Path) -> None:
    run(["gcc", *WARNINGS, "-c", SOURCE, "-o", tmp_path / "library.o"])
    assert " T " not in run(["nm", tmp_path / "library.o"])
