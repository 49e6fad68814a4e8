"""What a model's library exports, needs and weighs, and that several live in one process."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from edgepack.render.sources import kernels_object
from workbench.mini import VARIANTS, WARNINGS, MiniBundle, make_sources, run

HERE = Path(__file__).parent


def defined_symbols(library: Path) -> set[str]:
    return set(re.findall(r"^\S+ \S (\S+)$", run(["nm", "-D", "--defined-only", library]), re.MULTILINE))


def undefined_symbols(library: Path) -> set[str]:
    return set(re.findall(r"^\s+[Uw] (\w+)", run(["nm", "-D", library]), re.MULTILINE))


def text_bytes(path: Path) -> int:
    return int(run(["size", path]).splitlines()[1].split()[0])


def test_exactly_one_symbol_is_exported(mini: MiniBundle) -> None:
    """Also without a version script: the kernels are hidden because model.c declares them so."""
    assert defined_symbols(mini.shared) == {"edgepack_model_mini"}


def test_static_library_has_one_visible_symbol_besides_the_kernels(mini: MiniBundle) -> None:
    listed = run(["nm", "--defined-only", "--extern-only", mini.static])
    names = set(re.findall(r"^\S+ \S (\S+)$", listed, re.MULTILINE))
    assert {name for name in names if not name.startswith("mini_")} == {"edgepack_model_mini"}


def test_undefined_symbols_are_those_of_libc_and_threads(mini: MiniBundle) -> None:
    allowed = re.compile(
        r"pthread_\w+|getpid|sched_(yield|getcpu|[gs]etaffinity)|sigfillset|clock_gettime|open(64)?|close"
        r"|f?stat(64)?|mmap(64)?|munmap|malloc|posix_memalign|madvise|free|mem(cpy|set|move|cmp)"
        r"|syscall|__fxstat(64)?|__stack_chk_fail|__cxa_finalize|__gmon_start__|_ITM_\w+"
    )
    assert [name for name in undefined_symbols(mini.shared) if not allowed.fullmatch(name)] == []


def test_the_runtime_is_small(mini: MiniBundle, tmp_path: Path) -> None:
    stripped = tmp_path / "lib.so"
    run(["strip", "-o", stripped, mini.shared])
    assert text_bytes(stripped) - text_bytes(mini.root / kernels_object(0, 1)) <= 20 * 1024


@pytest.fixture(scope="module", params=["gcc", "thread"])
def two_models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, MiniBundle, MiniBundle]:
    """The name of a variant, and two bundles built so, the second one in the first one's folder."""
    cc, flags = VARIANTS[request.param]
    mini = make_sources(tmp_path_factory.mktemp("two models") / "mini")
    other = make_sources(mini.root / "other", name="other", seed=2)
    for bundle in (mini, other):
        bundle.build(cc=cc, flags=flags, program=False)
    return request.param, mini, other


@pytest.mark.parametrize("linking", ["static", "dlopen"])
def test_two_models_in_one_process(
    linking: str, two_models: tuple[str, MiniBundle, MiniBundle], tmp_path: Path
) -> None:
    variant, mini, other = two_models
    cc, flags = VARIANTS[variant]
    static = ["-DSTATIC", mini.static, other.static] if linking == "static" else ["-ldl"]
    program = tmp_path / "two_models"
    include = other.root / "include"
    run(
        [
            *(*cc, *WARNINGS, *flags, *mini.includes, f"-I{include}", HERE / "two_models.c", *static),
            *("-o", program, "-lpthread", "-lm", "-ldl"),
        ]
    )
    run([program, "both", mini.root])


def test_headers_serve_cpp(mini: MiniBundle, tmp_path: Path) -> None:
    source = tmp_path / "consumer.cpp"
    shutil.copyfile(HERE / "consumer.cpp", source)
    program = tmp_path / "consumer"
    warnings = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    run(["g++", *warnings, *mini.includes, source, mini.static, "-o", program, "-lpthread"])
    assert run([program, mini.params]) == "1 1\n"


def test_headers_serve_cpp_where_int32_is_a_long(mini: MiniBundle, tmp_path: Path) -> None:
    """As arm-none-eabi-g++ has it: there a status is no int, and mixing it with one is warned about."""
    (tmp_path / "use.cpp").write_text("#include <mini.h>\nep_options options = EP_OPTIONS_INIT;\n")
    command = ["g++", "-ffreestanding", "-U__INT32_TYPE__", "-D__INT32_TYPE__=long int", "-fsyntax-only"]
    warnings = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    run([*command, *warnings, *mini.includes, tmp_path / "use.cpp"])


@pytest.mark.parametrize("cc", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_library_is_the_same_bytes_in_any_folder(cc: str, tmp_path: Path) -> None:
    built = []
    for folder in ("a", "a much longer folder"):
        bundle = make_sources(tmp_path / folder / "bundle", mode="embed")
        prefix = f"-ffile-prefix-map={bundle.root}=."
        flags = ("-O2", "-Wl,--build-id=none" if cc == "gcc" else "-O2", prefix)
        bundle.build(cc=(cc,), flags=flags, program=False)
        stripped = tmp_path / folder / "lib.so"
        run(["strip", "-o", stripped, bundle.shared])
        built.append(stripped.read_bytes())
    assert built[0] == built[1]
