"""codegen.driver and codegen.names: what is rendered, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import ConfigError, InternalError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CPU_FEATURES
from edgepack.plan.types import Arena, Plan, Step, TensorSpec
from edgepack.render.names import c_identifier, c_string, printable, unique_identifiers
from edgepack.render.sources import (
    LOADER_SOURCES,
    ParamsMode,
    Variant,
    kernels_object,
    params_define,
    render_model,
    render_project,
    runtime_files,
)
from edgepack.render.values import model_symbol
from edgepack.resources import TEMPLATES
from tests.support.mini import WARNINGS, make_sources, mini_plan, run


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
        cpu_arch=arch,
        threads=4,
        heterogeneous=heterogeneous,
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
    text = render(mini_plan(), requires=("avx2", "sse4.1"))["src/model.c"]
    assert "EP_CPU_BIT(EP_CPU_X86_64_AVX2) | EP_CPU_BIT(EP_CPU_X86_64_SSE4_1)" in text
    assert '"avx2,sse4.1"' in text
    assert "EP_ARCH_X86_64" in text


def test_unknown_feature_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="neon") as caught:
        render(mini_plan(), requires=("neon",))
    assert "avx512vnni" in caught.value.hint


def test_features_are_those_that_the_runtime_detects() -> None:
    text = (TEMPLATES / "runtime" / "cpu.c").read_text(encoding="utf-8")
    for arch, names in CPU_FEATURES.items():
        if not names:
            continue
        body = text.split(f"#define EP_CPU_{arch.upper()}_LIST(X)")[1].split("\n\n")[0]
        assert sorted(re.findall(r'X\(\w+, \d+,\s+"([^"]+)"', body)) == sorted(names)
        bits = [int(bit) for bit in re.findall(r"X\(\w+, (\d+),", body)]
        assert bits == list(range(len(names)))  # the bit is the index in the table


def test_dtypes_are_those_of_the_plan_and_the_params() -> None:
    from edgepack.plan.dtypes import DTYPE_CODE

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


def test_loader_sources_are_all_there() -> None:
    shipped = {name for name in runtime_files() if name.startswith("src/loader/") and name.endswith(".c")}
    assert shipped == set(LOADER_SOURCES)
    assert "include/edgepack/runtime.h" in runtime_files()


@pytest.mark.parametrize("shared", [None, "lib/libmini.so"])
def test_project_names_only_what_was_built(shared: str | None) -> None:
    kernels = [kernels_object(0, 1)]
    texts = render_project(
        mini_plan(), kernels=kernels, params_mode="embed", shared=shared, static="lib/libmini.a"
    )
    config = texts["cmake/mini-config.cmake"]
    assert ("libmini.so" in config) == (shared is not None)
    assert "mini::static" in config
    assert "mini_PARAMS" not in config  # they are in the library
    libs = texts["pkgconfig/mini.pc"]
    assert ("Libs.private" in libs) == (shared is not None)


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


def test_identifiers() -> None:
    assert c_identifier("input.1") == "input_1"
    assert c_identifier("__a--b__") == "a_b"
    assert c_identifier("1x") == "x1x"
    assert c_identifier("größe") == "grosse" or c_identifier("größe") == "groe"
    assert c_identifier("漢字") == "x"
    assert model_symbol("ResNet-18") == "edgepack_model_ResNet_18"
    assert unique_identifiers(["a", "a.", "int", "a_2"], taken={"a_3"}) == ["a", "a_2", "int_", "a_2_2"]
    assert unique_identifiers(["x", "X"], upper=True) == ["X", "X_2"]


def test_strings_and_comments() -> None:
    assert c_string('a"\\?\n') == '"a\\"\\\\\\?\\012"'
    assert c_string("µ1") == '"\\302\\2651"'
    assert printable("a*/b/*c??/\n") == "a*|b|*c?/?"


def test_params_define_refuses_what_no_assembler_takes(tmp_path: Path) -> None:
    assert params_define(tmp_path / "with space" / "ü.params").startswith('"/')
    with pytest.raises(ConfigError, match="cannot be embedded"):
        params_define(tmp_path / 'a"b' / "x.params")


def test_steps_without_tasks_are_allowed_and_negative_ones_not() -> None:
    plan = mini_plan()
    kernel = plan.steps[0]
    assert render(replace(plan, steps=(replace(kernel, tasks=0),)))
    with pytest.raises(InternalError, match="-1 tasks"):
        render(replace(plan, steps=(Step(kernel.kernel, -1, kernel.arguments),)))
