"""Runs the fuzz targets of the C runtime and the loader under libFuzzer.

    python tools/fuzz_runtime.py SECONDS [TARGET ...] [--folder FOLDER]

Each target (tests/runtime/fuzz_*.c but fuzz_main.c) runs for so many seconds on one core, from the tests'
own corpus and what earlier runs left in FOLDER/<target> (default build/fuzz). An input that fails stays
there as crash-*; `FOLDER/bin/<target> FILE` runs it alone. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench import fuzz_targets  # noqa: E402
from workbench.mini import VARIANTS, MiniBundle, ParamsMode, make_sources  # noqa: E402

#: Longer inputs show nothing more.
LONGEST = {"fuzz_loader": 8192, "fuzz_params": 8192, "fuzz_params_table": 8192, "fuzz_session": 256}


class Builder:
    """The mini bundles, with libFuzzer's counters in the runtime."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, MiniBundle] = {}

    def __call__(self, variant: str, mode: ParamsMode = "file") -> MiniBundle:
        if mode not in self._built:
            root = self._folder / f"mini-{mode}"
            shutil.rmtree(root, ignore_errors=True)
            cc, flags = VARIANTS[variant]
            bundle = make_sources(root, mode=mode)
            flags = (*flags, "-O1", "-fsanitize=fuzzer-no-link")
            self._built[mode] = bundle.build(cc=cc, flags=flags, shared=False)
        return self._built[mode]


def fuzz(target: str, seconds: int, build: Builder, folder: Path) -> bool:
    """Whether the target got through."""
    program, corpus = folder / "bin" / target, folder / target
    corpus.mkdir(parents=True, exist_ok=True)
    bundle = fuzz_targets.link(build, target, program, ("-fsanitize=fuzzer",))
    for number, file in enumerate(
        fuzz_targets.corpus(target, bundle.params, bundle.root / "test", folder / "bin")
    ):
        shutil.copyfile(file, corpus / f"seed{number:02}")
    command = [program, f"-max_total_time={seconds}", f"-max_len={LONGEST.get(target, 1024)}", "-timeout=120"]
    command += [f"-artifact_prefix={corpus}/", "-verbosity=0", "-print_final_stats=1", corpus]
    print(f"{target}:", flush=True)
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seconds", type=int, help="for each target")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(fuzz_targets.TARGETS)}; default: all")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args()
    if unknown := set(options.target) - set(fuzz_targets.TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    folder = options.folder.absolute()
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    build = Builder(folder)
    results = [
        fuzz(target, options.seconds, build, folder) for target in options.target or fuzz_targets.TARGETS
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
