"""The elementary functions' stated errors, measured against float64, and their ends."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.kernels.cpu.emit import vector_math as vmath
from edgepack.compiler.kernels.cpu.emit import vector_power as vpower
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from edgepack.toolchains import resolve

COUNT = 1 << 15
LANES = {"scalar": 1, "four": 4, "sixteen": 16}
#: CPUs to compile for: this machine's, and one of its kind without fused multiply-add.
WITHOUT_FMA = {"x86_64": "linux-x86_64"}.get(platform.machine())
KINDS = [(name, "host") for name in sorted(LANES)] + ([("four", WITHOUT_FMA)] if WITHOUT_FMA else [])

#: exp flushes what lies below to 0.
SMALLEST_EXP = 2.4e-38

ORDINARY = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, 8388607.5, -8388608.5]
EXTREME = [1e-45, -1e-45, 1.17e-38, 3.4e38, -3.4e38, 88.7, 88.73, -104.0, np.inf, -np.inf, np.nan]
SPECIAL = np.array([*ORDINARY, *EXTREME], np.float32)

#: name -> (float64 reference, stated error in ulp)
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3),
    "tanh": (np.tanh, 4),
    "erf": (np.vectorize(erf, otypes=[np.float64]), 4),
    "log": (np.log, 2),
    "asin": (np.arcsin, 4),
    "atan": (np.arctan, 3),
    "sinh": (np.sinh, 6),
    "cosh": (np.cosh, 5),
    "asinh": (np.arcsinh, 5),
    "acosh": (np.arccosh, 5),
    "atanh": (np.arctanh, 5),
    "sqrt": (np.sqrt, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "fabs": (np.abs, 0),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
    "trunc": (np.trunc, 0),
    "round": (np.rint, 0),
    "nearbyint": (np.rint, 0),
}

EXPONENTS = [-3.0, -1.0, -0.5, 0.5, 2.0, 3.0, 4.0, 5.0, 1.7]
QUARTERS = [0.25, 0.75, -0.25, -0.75, 1.5, 2.75, -1.25, -2.0]

RANGES = [(-1.0, 1.0), (-10.0, 10.0), (-86.9, 88.7), (0.0, 1e-3), (0.5, 2.0), (-1e30, 1e30), (1e-40, 1e-37)]


def _unary(name: str, lanes: int, target: CpuTarget) -> Any:
    e = Emitter(lanes, target, "float32")
    x, y = e.param(0, COUNT), e.output(0, COUNT)
    e.tasks(
        lambda t: e.vstore(
            y, t * lanes, vmath.elementary(e, f"tirx.{name}", e.let(e.vload(x, t * lanes)), lanes)
        )
    )
    return e.stage(COUNT // lanes).function


def _binary(function: Callable[..., Any], lanes: int) -> Any:
    e = Emitter(lanes, dtype="float32")
    a, b, y = e.param(0, COUNT), e.param(1, COUNT), e.output(0, COUNT)

    def task(t: Any) -> None:
        p, q = e.let(e.vload(a, t * lanes)), e.let(e.vload(b, t * lanes))
        e.vstore(y, t * lanes, function(e, p, q, lanes))

    e.tasks(task)
    return e.stage(COUNT // lanes).function


class _Library:
    def __init__(self, lanes: int, device: str, folder: Path) -> None:
        target = load_device(device).cpu_target()
        functions = {
            f"f_{name}": _unary(name, lanes, target) for name in [*FUNCTIONS, "sin", "cos", "tan", "acos"]
        }
        functions["f_pow"] = _binary(vpower.power, lanes)
        functions["f_max"] = _binary(lambda e, a, b, n: vmath.maximum(e, a, b), lanes)
        functions["f_min"] = _binary(lambda e, a, b, n: vmath.minimum(e, a, b), lanes)
        functions["f_below"] = _binary(vmath.exp_below, lanes)
        for exponent in (*EXPONENTS, *QUARTERS):
            functions[_power_symbol(exponent)] = _binary(
                lambda e, a, b, n, y=exponent: vpower.power(e, a, e.f32(y, n), n, y), lanes
            )
        compile_object(functions, target, folder / "vmath.o")
        resolve(load_device("host")).link_shared(
            [folder / "vmath.o"], folder / "vmath.so", exported=sorted(functions), soname="vmath.so"
        )
        self.lanes, self.library = lanes, ctypes.CDLL(str(folder / "vmath.so"))
        self.fma = target.fma

    def __call__(self, name: str, *inputs: np.ndarray) -> np.ndarray:
        padded = [np.zeros(COUNT, np.float32) for _ in inputs]
        for target, source in zip(padded, inputs, strict=True):
            target[: len(source)] = source
        result = np.full(COUNT, 12345, np.float32)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*padded, result)]
        getattr(self.library, f"f_{name}")(*pointers, ctypes.c_int32(0), ctypes.c_int32(COUNT // self.lanes))
        return result[: len(inputs[0])]


def _power_symbol(exponent: float) -> str:
    return "f_pow_" + str(exponent).replace(".", "_").replace("-", "m")


@pytest.fixture(scope="module", params=KINDS, ids=" on ".join)
def call(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Library:
    lanes, device = request.param
    return _Library(LANES[lanes], device, tmp_path_factory.mktemp("vmath"))


def _stated(call: _Library, name: str) -> float:
    """The stated error in ulp on that CPU."""
    return 6 if name == "erf" and not call.fma else FUNCTIONS[name][1]


def _ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    return np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact.astype(np.float32)))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_error_is_at_most_the_stated_one(call: _Library, name: str) -> None:
    reference, stated = FUNCTIONS[name][0], _stated(call, name)
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        for low, high in RANGES:
            x = rng.uniform(low, high, COUNT).astype(np.float32)
            exact, got = reference(x.astype(np.float64)), call(name, x)
            rounded = exact.astype(np.float32)
            normal = np.isfinite(rounded) & (np.abs(rounded) > SMALLEST_EXP)
            if name in {"fabs", "floor", "ceil", "trunc", "round", "nearbyint", "log", "sqrt", "erf", "tanh"}:
                normal = np.isfinite(rounded) & ((np.abs(rounded) > 1.2e-38) | (rounded == 0))
            assert _ulps(got[normal], exact[normal]).max(initial=0) <= stated, (low, high)
            np.testing.assert_array_equal(got[~np.isfinite(rounded)], rounded[~np.isfinite(rounded)])


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_ends_zeros_and_nan(call: _Library, name: str) -> None:
    reference, stated = FUNCTIONS[name][0], _stated(call, name)
    with np.errstate(all="ignore"):
        expected = reference(SPECIAL.astype(np.float64)).astype(np.float32)
        got = call(name, SPECIAL)
    for x, value, wanted in zip(SPECIAL, got, expected, strict=True):
        if np.isnan(wanted) or np.isinf(wanted) or wanted == 0:
            np.testing.assert_equal(value, wanted, f"{name}({x})")
            assert wanted != 0 or np.signbit(value) == np.signbit(wanted), f"{name}({x})"
        elif abs(wanted) < SMALLEST_EXP:
            assert abs(value) <= SMALLEST_EXP, f"{name}({x})"
        else:
            assert _ulps(np.array([value]), np.array([wanted], np.float64))[0] <= stated + 0.5, f"{name}({x})"


@pytest.mark.parametrize(("name", "reference"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_of_small_and_large_angles(
    call: _Library, name: str, reference: Callable[[Any], Any]
) -> None:
    rng = np.random.default_rng(3)
    quarters = (np.arange(-(1 << 14), 1 << 14) * (np.pi / 2)).astype(np.float32)  # beyond 8192, too
    uniform = [rng.uniform(-end, end, COUNT).astype(np.float32) for end in (0.1, 10.0, 8191.0, 1e5, 1e30)]
    for x in (quarters, *uniform):
        assert np.abs(call(name, x) - reference(x.astype(np.float64))).max() <= 1.2e-7
    ends = np.array([0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(invalid="ignore"):
        expected = reference(ends)
    np.testing.assert_array_equal(call(name, ends), expected)
    assert (np.signbit(call(name, ends))[:2] == np.signbit(expected)[:2]).all()


def test_tangent(call: _Library) -> None:
    rng = np.random.default_rng(3)
    for end in (0.1, 1.5, 10.0, 8191.0, 1e30):
        x = rng.uniform(-end, end, COUNT).astype(np.float32)
        exact = np.tan(x.astype(np.float64))
        # An error of the reduced angle grows with the slope, 1 + tan(x)**2.
        allowed = 4 * np.spacing(np.abs(exact).astype(np.float32)) + 1.2e-7 * (1 + exact**2)
        assert (np.abs(call("tan", x) - exact) <= allowed).all(), end
    ends = np.array([0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(call("tan", ends), np.tan(ends))


def test_arc_cosine(call: _Library) -> None:
    x = np.random.default_rng(3).uniform(-1, 1, COUNT).astype(np.float32)
    x[:8] = 1, -1, 0, 0.5, -0.5, 1.1, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        exact = np.arccos(x.astype(np.float64))
    got = call("acos", x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    allowed = np.maximum(4 * np.spacing(np.abs(exact).astype(np.float32)), 2e-7)
    assert (np.isnan(exact) | (np.abs(got - exact) <= allowed)).all()


def test_exp_is_monotonous_around_its_ends(call: _Library) -> None:
    x = np.concatenate([np.linspace(-88, -86, 4000), np.linspace(88, 89.5, 4000)]).astype(np.float32)
    got = call("exp", x)
    assert (np.diff(got[:4000]) >= 0).all() and got[0] == 0
    high = got[4000:]
    assert np.isinf(high[-1]) and (high[1:] >= high[:-1]).all()


@pytest.mark.parametrize(
    ("base", "exponent"),
    [((0, 10), (-3, 3)), ((0, 1), (0, 10)), ((0.5, 2), (-80, 80)), ((0.9, 1.1), (-3, 3))],
)
def test_power_of_positive_bases(
    call: _Library, base: tuple[float, float], exponent: tuple[float, float]
) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(*base, COUNT).astype(np.float32)
    y = rng.uniform(*exponent, COUNT).astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    inside = (exact > SMALLEST_EXP) & (exact < 3e38)
    relative = np.abs(call("pow", x, y) - exact)[inside] / exact[inside]
    assert (relative <= 1.5e-7 * (2 + np.abs(np.log(exact[inside])))).all()


def test_power_of_zero_negative_and_nan(call: _Library) -> None:
    bases = np.array([0, 0, 0, -2, -2, -2, -2, -0.5, np.nan, 1, np.nan, np.inf, 2, 2], np.float32)
    exponents = np.array([2, -2, 0, 2, 3, -1, 0.5, 7, 1, np.nan, 0, 2, np.inf, -np.inf], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(call("pow", bases, exponents), np.power(bases, exponents), rtol=1e-6)


@pytest.mark.parametrize("largest", [2.0, -3e9, np.finfo(np.float32).min])
def test_exp_below_the_largest(call: _Library, largest: float) -> None:
    below = -np.exp(np.random.default_rng(5).uniform(-12, 5, COUNT)).astype(np.float32)
    below[:4] = 0, -np.inf, np.nan, -1e4
    top = np.full(COUNT, largest, np.float32)
    x = below + top
    got = call("below", x, top)
    t = (x.astype(np.float64) - top) * vmath.LOG2_E
    inside = t > -125
    error = np.abs(got - np.exp2(t))[inside] / np.exp2(t[inside])
    assert (error <= 8e-8 + 1e-7 * np.abs(t[inside])).all()
    assert got[0] == pytest.approx(1) and np.isnan(got[2])
    assert got[1] <= 2.4e-38 and (got[t <= -125] <= 2.4e-38).all()


@pytest.mark.parametrize("exponent", QUARTERS)
def test_power_with_quarters(call: _Library, exponent: float) -> None:
    x = np.exp(np.random.default_rng(4).uniform(-20, 20, COUNT)).astype(np.float32)
    x[:5] = 0, np.inf, np.nan, -1.0, 1e-39
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), exponent)
        expected = exact.astype(np.float32)
    got = call(_power_symbol(exponent)[2:], x, x)
    inside = np.isfinite(expected) & (np.abs(expected) > 1.2e-38)
    inside[:3] = False
    np.testing.assert_array_equal(got[:3], expected[:3])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    error = np.abs(got[inside] - exact[inside]) / np.spacing(np.abs(expected[inside]))
    assert error.max() <= 5


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_power_with_a_constant_exponent(call: _Library, exponent: float) -> None:
    x = np.random.default_rng(3).uniform(-4, 4, COUNT).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), exponent)
    got = call(_power_symbol(exponent)[2:], x, x)
    with np.errstate(all="ignore"):
        allowed = 1.5e-7 * (2 + np.abs(np.log(np.abs(expected)))) * np.abs(expected)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        assert (np.isnan(expected) | (np.abs(got - expected) <= allowed)).all()


def test_nan_survives_maximum_and_minimum(call: _Library) -> None:
    values = np.array([np.nan, 1, -1, np.inf, -np.inf, 0], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    np.testing.assert_array_equal(call("max", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(call("min", a, b), np.minimum(a, b))
