"""The C that is rendered from a Plan, and the plans that are refused."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgepack.errors import ConfigError, InternalError
from edgepack.plan.dtypes import DTYPE_BYTES, DTYPE_CODE
from edgepack.plan.target import CPU_FEATURES
from edgepack.plan.types import Arena, LinearQuantisation, ParamsMode, Plan, Step, TensorSpec
from edgepack.render.model import Execution, Variant, render_model
from edgepack.render.sources import runtime_files
from edgepack.resources import TEMPLATES
from workbench.mini import WARNINGS, make_sources, mini_plan, run


def render(
    plan: Plan,
    *,
    mode: ParamsMode = "file",
    arch: str = "x86_64",
    requires: tuple[str, ...] = (),
    heterogeneous: bool = False,
) -> dict[str, str]:
    return render_model(
        [Variant("device", plan, requires)],
        params_id=bytes(range(32)),
        params_mode=mode,
        execution=Execution(arch, 4, heterogeneous),
    )


def test_same_plan_gives_the_same_text() -> None:
    plan = mini_plan()
    assert render(plan) == render(Plan.from_json(plan.to_json()))


def test_nothing_of_the_build_machine_is_rendered(tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle", mode="embed")
    for path in bundle.root.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes(), path


def test_required_features_become_bits_and_names() -> None:
    text = render(mini_plan(), requires=("avx2", "sse4.1", "amx-int8"))["src/model.c"]
    bits = ("AVX2", "SSE4_1", "AMX_INT8")
    assert " | ".join(f"EP_CPU_BIT(EP_CPU_X86_64_{bit})" for bit in bits) in text.replace("\n       ", "")
    assert '"avx2,sse4.1,amx-int8"' in text
    assert "EP_ARCH_X86_64" in text


def test_unknown_feature_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="neon") as caught:
        render(mini_plan(), requires=("neon",))
    assert "avx512vnni" in caught.value.hint


def test_features_are_those_that_the_runtime_detects() -> None:
    text = (TEMPLATES / "runtime" / "core" / "cpu.c").read_text(encoding="utf-8")
    for arch, names in CPU_FEATURES.items():
        if not names:
            continue
        body = text.split(f"#define EP_CPU_{arch.upper()}_LIST(X)")[1].split("\n\n")[0]
        assert sorted(re.findall(r'X\(\w+, \d+,\s+"([^"]+)"', body)) == sorted(names)
        bits = [int(bit) for bit in re.findall(r"X\(\w+, (\d+),", body)]
        assert bits == list(range(len(names)))  # the bit is the index in the table


def test_dtypes_are_those_of_the_plan_and_the_params() -> None:
    text = (TEMPLATES / "runtime" / "edgepack" / "runtime.h").read_text(encoding="utf-8")
    found = re.findall(r'X\((EP_\w+), (\d+), "(\w+)", (\d)\)', text)
    assert {name: int(size) for _, _, name, size in found} == DTYPE_BYTES
    assert {name: int(code) for _, code, name, _ in found} == DTYPE_CODE
    assert all(identifier == f"EP_{name.upper()}" for identifier, _, name, _ in found)


def test_step_with_the_wrong_number_of_arguments_is_refused() -> None:
    plan = mini_plan()
    broken = replace(plan, steps=(replace(plan.steps[1], arguments=plan.steps[1].arguments[:2]),))
    with pytest.raises(InternalError, match="mini_scale takes 3 pointers, not 2"):
        render(broken)


def test_steps_without_tasks_are_allowed_and_negative_ones_not() -> None:
    plan = mini_plan()
    kernel = plan.steps[0]
    assert render(replace(plan, steps=(replace(kernel, tasks=0),)))
    with pytest.raises(InternalError, match="-1 tasks"):
        render(replace(plan, steps=(Step(kernel.kernel, -1, kernel.arguments),)))


EXTREMES = Plan(
    name="ex",
    inputs=(),
    outputs=(
        TensorSpec("int", "float32", ()),
        TensorSpec("INT", "bfloat16", (0, 3)),
        TensorSpec("session", "uint64", (1,)),
        TensorSpec("9/π?\\\n", "bool", (2,)),
        TensorSpec("", "float64", (1,) * 9),
    ),
    constants=(),
    params_bytes=0,
    arena=Arena(),
    steps=(),
    kernels=(),
)


@pytest.mark.parametrize("plan", [EXTREMES, replace(EXTREMES, outputs=())], ids=["odd names", "no tensors"])
def test_odd_models_compile(plan: Plan, tmp_path: Path) -> None:
    """No input, no step, no params; a scalar, an empty tensor; names that are keywords, alike, empty."""
    for name, text in render(plan, mode="caller", heterogeneous=True).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, source in runtime_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source.read_bytes())
    use = tmp_path / "use.c"
    use.write_text("#include <ex.h>\nint main(void) { return EX_OUTPUTS == 99; }\n", encoding="utf-8")
    includes = [f"-I{tmp_path / 'include'}", f"-I{tmp_path / 'src'}"]
    for cc in ("gcc", "clang"):
        run(
            [
                cc,
                *WARNINGS,
                *includes,
                "-O2",
                use,
                tmp_path / "src/model.c",
                "-o",
                tmp_path / "use",
                "-lpthread",
            ]
        )
        run([tmp_path / "use"])
    run(["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", *includes, use])


#: Prints scales bit by bit, and zero points.
PRINTS = """
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <ex.h>
static uint32_t bits(float value) { uint32_t as; memcpy(&as, &value, sizeof as); return as; }
int main(void) {
%s    return 0;
}
"""


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_scales_of_the_header_are_the_models_bit_by_bit(cc: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0x00800000, 0x7F800000, 200, np.uint32)  # any normal number
    scales = [*bits.view(np.float32), *np.float32([1, 16, 1e-5, 3.4028235e38, 1 / 255])]
    zeros = [0, -128, 127, 255, -(2**31) + 1, *rng.integers(-128, 128, 200)]
    tensors = tuple(
        TensorSpec(f"t{i}", "int8", (2,), LinearQuantisation(float(scale), int(zero)))
        for i, (scale, zero) in enumerate(zip(scales, zeros, strict=True))
    )
    plan = replace(EXTREMES, inputs=tensors, outputs=(TensorSpec("sum", "float32", ()),))
    header = render(plan, mode="caller")["include/ex.h"]
    assert "SUM_SCALE" not in header
    (tmp_path / "ex.h").write_text(header, encoding="utf-8")
    for name, source in runtime_files().items():
        if name.startswith("include/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(source.read_bytes())
    lines = (
        f'    printf("%" PRIu32 " %d\\n", bits(EX_INPUT_T{i}_SCALE), -EX_INPUT_T{i}_ZERO_POINT);\n'
        for i in range(len(tensors))
    )
    (tmp_path / "use.c").write_text(PRINTS % "".join(lines), encoding="utf-8")
    includes = [f"-I{tmp_path}", f"-I{tmp_path / 'include'}"]
    run([cc, "-std=c99", *WARNINGS, *includes, tmp_path / "use.c", "-o", tmp_path / "use"])
    printed = subprocess.run([tmp_path / "use"], capture_output=True, text=True, check=True).stdout.split()
    assert printed[0::2] == [str(np.float32(scale).view(np.uint32)) for scale in scales]
    assert printed[1::2] == [str(-zero) for zero in zeros]
