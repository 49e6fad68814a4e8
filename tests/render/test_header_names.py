"""A model's header beside all headers of a system: none of its names is a macro of theirs, in any order."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle.layout import check_name, default_name
from edgepack.errors import ConfigError
from edgepack.plan.types import TensorSpec
from edgepack.render.model import Execution, Variant, render_model
from edgepack.render.sources import runtime_files
from edgepack.render.templates import render
from edgepack.render.values import model_values
from edgepack.resources import TEMPLATES
from workbench.mini import mini_plan

#: Headers of C, C++ and POSIX, those of them that there are.
HEADERS = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign
    stdarg stdbool stddef stdint stdio stdlib stdnoreturn string time uchar wchar wctype aio
    arpa/inet cpio dirent dlfcn fcntl fmtmsg fnmatch ftw glob grp iconv langinfo libgen monetary
    mqueue net/if netdb netinet/in netinet/tcp nl_types poll pthread pwd regex sched search
    semaphore spawn strings sys/ipc sys/mman sys/msg sys/resource sys/select sys/sem sys/shm
    sys/socket sys/stat sys/statvfs sys/time sys/times sys/types sys/uio sys/un sys/utsname sys/wait
    syslog tar termios ulimit unistd utime utmpx wordexp
""".split()  # noqa: SIM905
WINDOWS = "winsock2 ws2tcpip windows shlobj commctrl objbase io direct process conio malloc tchar".split()  # noqa: SIM905

#: Names that have been seen to break a header, or would.
KNOWN = [
    "EOF",
    "I",
    "errno",
    "stdin",
    "NULL",
    "near",
    "far",
    "min",
    "max",
    "BUFSIZ",
    "st_mtime",
    "CreateFile",
]


def _includes(names: Sequence[str]) -> str:
    """All of these headers that there are."""
    return "".join(f"#if __has_include(<{n}.h>)\n#include <{n}.h>\n#endif\n" for n in names)


def _run(command: Sequence[str], text: str, folder: Path) -> str:
    done = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[:3000]}"
    return done.stdout


def _check(compiler: Sequence[str], headers: Sequence[str], folder: Path, most: int) -> None:
    """Compiles a header whose tensors have names of the compiler's macros, before and behind all headers."""
    text = _includes(headers)
    defined = _run([*compiler, "-dM", "-E", "-"], text, folder)
    macros = sorted(set(re.findall(r"^#define ([A-Za-z]\w*)(?: |$)", defined, re.MULTILINE)))
    assert "EOF" in macros
    lower = [name for name in macros if name == name.lower()]
    capital = [name for name in macros if name != name.lower()]
    names = [*KNOWN, *lower, *random.Random(1).sample(capital, min(most, len(capital)))]
    inputs = tuple(TensorSpec(name, "float32", (2,)) for name in dict.fromkeys(names))
    plan = replace(mini_plan(), steps=(), kernels=(), inputs=inputs)
    options = {"params_id": bytes(32), "execution": Execution("x86_64")}
    files = render_model([Variant("host", plan)], params_mode="file", **options)  # type: ignore[arg-type]
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")
    runtime = runtime_files()["include/edgepack/runtime.h"].parent.parent
    model = f'#include "{(folder / "include/mini.h").as_posix()}"\n'
    for order in (text + model, model + text):
        _run([*compiler, f"-I{runtime}", "-Wall", "-Werror", "-c", "-o", "names.o", "-"], order, folder)


@pytest.mark.parametrize(
    "compiler",
    [
        *("gcc -xc -std=gnu11", "g++ -xc++ -std=gnu++17", "clang -xc -std=gnu11"),
        pytest.param("clang++ -xc++ -std=c++17", marks=pytest.mark.slow),
    ],
)
def test_no_macro_of_c_or_posix_breaks_a_header(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler.split(maxsplit=1)[0]) is None:
        pytest.skip("not installed")
    _check([*compiler.split(), "-D_GNU_SOURCE"], HEADERS, tmp_path, 300)


def test_the_example_of_firmware_has_arrays_that_no_function_is_called(tmp_path: Path) -> None:
    """Of C's library, which compilers know without a header, of the runtime's, or the example's own."""
    names = ["printf", "memcpy", "exp", "y0", "index", "main", "memory", "memory_bytes", "session", "open"]
    inputs = tuple(TensorSpec(name, "float32", (2,)) for name in names)
    plan = replace(mini_plan(), steps=(), kernels=(), inputs=inputs)
    options = {"params_id": bytes(32), "execution": Execution("arm", direct=True)}
    files = render_model([Variant("board", plan)], params_mode="embed", **options)  # type: ignore[arg-type]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8")
    arena = {"arena_attribute": '".bss.edgepack.session"', "arena_size": 64}
    values = {**model_values(plan, embedded=True), **arena}
    example = render("firmware/example.c.j2", values)
    runtime = runtime_files()["include/edgepack/runtime.h"].parent.parent
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only", "-xc"]
    include = [
        f"-I{tmp_path / 'include'}",
        f"-I{runtime}",
        "-include",
        str(TEMPLATES / "firmware/firmware.h"),
    ]
    _run(["gcc", *flags, *include, "-"], example, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["c", "c++"])
def test_no_macro_of_windows_breaks_a_header(language: str, tmp_path: Path) -> None:
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", f"-x{language}"]
    _check(compiler, [*WINDOWS, *HEADERS], tmp_path, 2000)


@pytest.mark.parametrize(
    "name", ["errno", "stdio", "time", "string", "sem", "x509", "Windows", "json", "command"]
)
def test_a_model_is_not_named_as_a_header_or_what_its_functions_collide_with(name: str) -> None:
    with pytest.raises(ConfigError, match="is reserved"):
        check_name(name)
    assert default_name(Path(f"{name}.onnx")) == f"model_{name.lower()}"
