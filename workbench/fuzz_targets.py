"""The fuzz targets of the C runtime and the loader: what each is linked with, and what it starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgepack.render.sources import LOADER_SOURCES
from workbench.mini import VARIANTS, WARNINGS, MiniBundle, run

__all__ = ["TARGETS", "Build", "corpus", "link"]

#: The C of the targets, and inputs that were found.
SOURCES = Path(__file__).resolve().parents[1] / "tests" / "runtime"

#: ``build(variant, mode="file")``: the mini bundle, built in one of the VARIANTS.
Build = Callable[..., MiniBundle]

#: What fuzz_session lets fail.
WRAPPED = ("malloc", "pthread_create", "pthread_mutex_init", "pthread_cond_init")


def corpus(target: str, params: Path, test: Path, folder: Path) -> list[Path]:
    """Files that the corruption starts from."""
    if target.startswith("fuzz_params"):
        return [params]
    if target == "fuzz_loader":
        return arguments(folder)
    if target == "fuzz_session":
        return sorted((SOURCES / "corpus" / "session").iterdir())
    if target == "fuzz_compare":
        specials = folder / "specials.bin"
        specials.write_bytes(b"\x00\x7c\x00\xfc\xff\x7f\x00\x00\x00\x00\x80\x7f\x00\x00\xc0\x7f" * 8)
        return [test / "output_0.bin", specials]
    full = folder / "tolerances.txt"
    full.write_text("1e-5 1e-05\r\n0 0\n .5\t1.25e+3 \n3 4", encoding="utf-8")
    return [test / "tolerances.txt", full]


def arguments(folder: Path) -> list[Path]:
    """Calls of the loader, each with what one of its files holds."""
    texts = {
        "info": b"info",
        "verify": b"verify\ntest\0\x01" + b"0 0\n" * 4,
        "bench": b"bench\ntest\n--runs\n3\n--warmup\n1\n--threads\n2\n--profile\0\x02" + bytes(8),
        "run": b"run\n--input\ndata=a/input_0.bin\n--input\nsmall.numbers=b_1.bin\n--output\nint=out\n"
        b"--schedule\ndynamic\0\0" + bytes(6400),
        "params": b"check-params\n--params\n/none",
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    return [folder / name for name in texts]


TARGETS = (
    *("fuzz_params", "fuzz_params_table", "fuzz_tolerances", "fuzz_compare", "fuzz_session", "fuzz_loader"),
)


def link(build: Build, target: str, program: Path, flags: tuple[str | Path, ...]) -> MiniBundle:
    """Builds a target with what it is linked with: its bundle."""
    bundle = build("address", "embed")
    cc, sanitizers = VARIANTS["address"]
    sources: dict[str, list[str | Path]] = {
        "fuzz_params": [bundle.static],
        "fuzz_params_table": ["-Wno-unused-function"],
        "fuzz_tolerances": [bundle.root / "src/loader/tolerances.c"],
        "fuzz_compare": [bundle.root / "src/loader/compare.c"],
        "fuzz_loader": [
            *(bundle.root / source for source in LOADER_SOURCES if not source.endswith("main.c")),
            *(bundle.static, "-Wl,--wrap=system_read,--wrap=system_write"),
        ],
        "fuzz_session": [bundle.static, *(f"-Wl,--wrap={function}" for function in WRAPPED)],
    }
    run(
        [
            *(*cc, *WARNINGS, *sanitizers, "-O1", *flags, *bundle.includes, SOURCES / f"{target}.c"),
            *(*sources[target], "-o", program, "-lpthread", "-lm"),
        ]
    )
    return bundle
