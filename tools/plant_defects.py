#!/usr/bin/env python3
"""Plants defects, one after the other, and says which test catches each: what the suite protects.

    python tools/plant_defects.py [ROOM ...] [--list]

The working tree (what git tracks, and new files that it does not ignore) is copied to a temporary folder.
There a defect's text is replaced, the tests of its room run until one fails, the text is put back, and the
test that failed has to pass: else it proves nothing. ROOM chooses defects by the room that they are in;
``--list`` only shows them. A text that is not found exactly once is an error: the code has changed, so change
the defect.

Run it with the Python of an environment that has edgepack's test dependencies; it takes two to ten
minutes. The exit status is 1 if a defect survives or a test fails without it, 2 if one cannot be planted.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Defect:
    """A mistake that somebody could make.

    Attributes:
        room: the part of the house that it is in.
        what: goes wrong.
        file: that is changed, from the top of the repository.
        old: the text that is replaced; it occurs once.
        new: what replaces it.
        tests: arguments of pytest: some tests of that room.
    """

    room: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


CPU = "edgepack/compiler/kernels/cpu"
DEFECTS = (
    Defect(
        "kernels",
        "a GRU's update gate weighs the new state instead of the one before",
        f"{CPU}/recurrent/cells.py",
        "(self.e.f32(1, self.lanes) - update) * new + update * hidden",
        "update * new + (self.e.f32(1, self.lanes) - update) * hidden",
        ("tests/compiler/kernels/test_recurrent.py",),
    ),
    Defect(
        "kernels",
        "a factor of a Winograd transform is a little off",
        f"{CPU}/conv/winograd_transforms.py",
        "(-ROOT, 1 / 6))",
        "(-ROOT, 1 / 6.001))",
        ("tests/compiler/kernels/test_winograd.py", "-k", "stated_error and fused"),
    ),
    Defect(
        "kernels",
        "the polynomial of exp reduces its argument less exactly",
        f"{CPU}/emit/vector_math.py",
        "k * e.f32(-2.12194440e-4, lanes)",
        "k * e.f32(-2.12190000e-4, lanes)",
        ("tests/compiler/kernels/test_vector_math.py",),
    ),
    Defect(
        "kernels",
        "the rows that are left over are no task of a reduction",
        f"{CPU}/rows/row_kernel.py",
        "return -(-rows // per_task)",
        "return max(1, rows // per_task)",
        ("tests/compiler/kernels/test_rowwise.py",),
    ),
    Defect(
        "kernels",
        "the elements of the last part are no part of a reduction",
        f"{CPU}/rows/row_parts.py",
        "e.loop(1, self.parts, part)",
        "e.loop(1, self.parts - 1, part)",
        ("tests/compiler/kernels/test_rowwise.py",),
    ),
    Defect(
        "kernels",
        "the weights of the last rows are not multiplied by their channels' factors",
        f"{CPU}/conv/computed_weights.py",
        "factor = e.let(e.load(factors, r))",
        "factor = e.let(e.load(factors, tirx.min(r, index(conv.depth - 2))))",
        ("tests/compiler/kernels/test_scaled_input.py",),
    ),
    Defect(
        "kernels",
        "a tap that is outside of the image is left out, although the padding is no zero",
        f"{CPU}/conv/tile_product.py",
        "c.inside < MOSTLY_INSIDE and c.outside == 0",
        "c.inside < MOSTLY_INSIDE",
        ("tests/compiler/kernels/test_micro_kernels.py",),
    ),
    Defect(
        "kernels",
        "the numbers of a pair are swapped in the packed weights",
        f"{CPU}/micro/int32_units.py",
        "np.ascontiguousarray(units.astype(self.packed))",
        "np.ascontiguousarray(units[..., ::-1].astype(self.packed))",
        ("tests/compiler/kernels/test_integer_products.py",),
    ),
    Defect(
        "kernels",
        "each slice of a reduction begins with nothing",
        f"{CPU}/conv/implicit_gemm.py",
        "begin = tirx.EQ(tile.k_block, index(0))",
        "begin = tirx.GE(tile.k_block, index(0))",
        ("tests/compiler/kernels/test_slices.py",),
    ),
    Defect(
        "planner",
        "a buffer takes the place of one that the same step still reads",
        "edgepack/compiler/planner/arena.py",
        "requests[j].last_step >= requests[i].first_step]",
        "requests[j].last_step > requests[i].first_step]",
        ("tests/compiler/planner/test_arena.py",),
    ),
    Defect(
        "planner",
        "what is read elsewhere too is computed inside of a concatenation",
        "edgepack/compiler/planner/concat_in_place.py",
        "uses[id(v)] != 1",
        "uses[id(v)] < 1",
        ("tests/compiler/planner/test_concat_in_place.py",),
    ),
    Defect(
        "runtime",
        "threads begin where others have not ended",
        "templates/runtime/core/executor.c",
        "count / parts * part + (part < extra ? part : extra)",
        "count / parts * part + (part < extra ? part : 0u)",
        ("tests/runtime/test_c_programs.py", "-k", "test_runs"),
    ),
    Defect(
        "runtime",
        "a changed byte of the params is not seen",
        "templates/runtime/core/params.c",
        "return ep_equal(digest, image + EP_PARAMS_ID, sizeof digest) ? EP_OK : EP_E_PARAMS_HASH;",
        "return image != NULL ? EP_OK : EP_E_PARAMS_HASH;",
        ("tests/runtime/test_c_programs.py", "-k", "test_statuses"),
    ),
    Defect(
        "objectfiles",
        "a library that looks for others in a folder of the packing machine passes the audit",
        "edgepack/objectfiles/elf/audit.py",
        "            *_run_path(binary),\n",
        "",
        ("tests/objectfiles/test_elf_audit.py",),
    ),
    Defect(
        "frontend",
        "an integer convolution forgets the zero points of its weights",
        "edgepack/compiler/frontend/onnx/rewrites/quantised.py",
        "value.astype(np.int32) - shift",
        "value.astype(np.int32)",
        ("tests/compiler/frontend/onnx/test_rewrites.py",),
    ),
    Defect(
        "frontend",
        "a Relu that a quantiser took into a range is compared with what stands before it",
        "edgepack/compiler/frontend/onnx/compare/tensors.py",
        "return name if behind in other.origins or other.has_clip(name) else behind",
        "return name",
        ("tests/compiler/frontend/onnx/compare",),
    ),
    Defect(
        "render",
        "two tensors whose names differ in punctuation get one name in C",
        "edgepack/render/names.py",
        "while candidate in used:",
        "while candidate in taken:",
        ("tests/render/test_names.py",),
    ),
    Defect(
        "system",
        "a confined process may start programs",
        "edgepack/system/seccomp.py",
        '"execve": (59, 221), ',
        "",
        ("tests/system/test_confinement.py",),
    ),
    Defect(
        "system",
        "a confined process may make links in the folder of its job",
        "edgepack/system/landlock.py",
        "((reads, _READS), (writes, _WRITES), (own, _WRITES | _MAKE_SYM))",
        "((reads, _READS | _MAKE_REG), (writes, _WRITES), (own, _WRITES | _MAKE_SYM | _MAKE_FIFO))",
        ("tests/system/test_confinement.py",),
    ),
    Defect(
        "pipeline",
        "a worker is believed which files belong to a model",
        "edgepack/pipeline/compile.py",
        "        _check_beside(model, file)\n",
        "        pass\n",
        ("tests/pipeline/test_worker_confined.py",),
    ),
    Defect(
        "compiler",
        "the worker reads its jobs unconfined",
        "edgepack/compiler/worker.py",
        "unconfined = confine_as_granted()",
        'unconfined = ""',
        ("tests/pipeline/test_worker_confined.py",),
    ),
    Defect(
        "compiler",
        "PyTorch gets the guards of a file, which it executes",
        "edgepack/compiler/frontend/torch/pt2/program.py",
        '"guards_code": Constant(list),',
        '"guards_code": lambda value, levels: value,',
        ("tests/compiler/frontend/torch/test_archive.py",),
    ),
    Defect(
        "compiler",
        "TorchScript may call any operator",
        "edgepack/compiler/frontend/torch/script/expressions.py",
        "        if not is_allowed(whole):\n",
        "        if not whole:\n",
        ("tests/compiler/frontend/torch/test_torchscript_archive.py",),
    ),
    Defect(
        "graph",
        "a position that depends on data is taken as it is",
        "edgepack/compiler/graph/safe_addresses.py",
        "            functions[gvar] = _guarded(function, bounds)\n",
        "            pass\n",
        ("tests/compiler/graph/test_safe_addresses.py",),
    ),
    Defect(
        "compiler",
        "what rewrites write is not compared with the standard's schemas",
        "edgepack/compiler/frontend/onnx/normalise.py",
        "    check_forms(model)\n",
        "    pass\n",
        ("tests/compiler/frontend/onnx/test_recent_forms.py",),
    ),
    Defect(
        "compiler",
        "a pool that pads itself puts the larger part behind",
        "edgepack/compiler/frontend/onnx/rewrites/automatic_padding.py",
        "[*small, *large] if upper else [*large, *small]",
        "[*small, *large]",
        ("tests/compiler/frontend/onnx/test_rewrites.py", "-k", "Pool"),
    ),
    Defect(
        "compiler",
        "a Dropout of training is one of inference",
        "edgepack/compiler/frontend/onnx/rewrites/training.py",
        "    if trains is not False and (ratio is None or ratio.any()):\n",
        "    if False:\n",
        ("tests/compiler/frontend/onnx/test_training.py",),
    ),
    Defect(
        "graph",
        "a legalised call may be of another type",
        "edgepack/compiler/graph/checked_calls.py",
        "            if wanted != found:\n",
        "            if False:\n",
        ("tests/compiler/graph/test_checked_calls.py",),
    ),
    Defect(
        "backends",
        "a divisor of 0 ends the process",
        "edgepack/compiler/backends/defined/operations.py",
        "    by_zero = divisor.has(0)\n",
        "    by_zero = False\n",
        ("tests/compiler/backends/test_defined.py",),
    ),
)


class CannotPlantError(Exception):
    """The text of a defect is not where it was."""


def copy_tree(target: Path) -> None:
    """What git tracks or would track, as it is in the working tree."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def planted(defect: Defect, text: str) -> str:
    """The text with the defect; CannotPlantError if what it replaces is not there exactly once."""
    count = text.count(defect.old)
    if count != 1:
        raise CannotPlantError(
            f"{defect.file} has {defect.old!r} {count} times, not once: change what is planted there."
        )
    return text.replace(defect.old, defect.new)


def first_failure(copy: Path, tests: Sequence[str]) -> str | None:
    """The first of the tests that fails in the copy; None if all pass."""
    options = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != 1 or found is None:
        raise CannotPlantError(f"pytest could not run {' '.join(tests)}:\n{done.stdout}{done.stderr}")
    return found[1]


def try_out(defect: Defect, copy: Path) -> str | None:
    """What is wrong with the suite; None if it caught the defect, which is printed."""
    path, begin = copy / defect.file, time.monotonic()
    before = path.read_text(encoding="utf-8")
    path.write_text(planted(defect, before), encoding="utf-8")
    caught_by = first_failure(copy, defect.tests)
    path.write_text(before, encoding="utf-8")
    label = f"{defect.room}: {defect.what}"
    if caught_by is None:
        return f"SURVIVES  {label}"
    if first_failure(copy, [caught_by]) is not None:
        return f"UNPROVED  {label}: {caught_by} fails without it"
    print(f"caught    {label}\n          by {caught_by} ({time.monotonic() - begin:.0f} s)", flush=True)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    rooms = sorted({defect.room for defect in DEFECTS})
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(rooms)}; all without one")
    parser.add_argument("--list", action="store_true", help="show the defects and plant none")
    options = parser.parse_args()
    if unknown := set(options.rooms) - set(rooms):
        parser.error(f"no defect is in {', '.join(sorted(unknown))}")
    chosen = [defect for defect in DEFECTS if not options.rooms or defect.room in options.rooms]
    if options.list:
        for defect in chosen:
            print(f"{defect.room}: {defect.what} ({defect.file}; {' '.join(defect.tests)})")
        return 0
    try:
        for defect in chosen:  # all before the first is tried
            planted(defect, (ROOT / defect.file).read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory(prefix="edgepack-defects-") as folder:
            copy_tree(Path(folder))
            wrong = [found for defect in chosen if (found := try_out(defect, Path(folder)))]
    except (CannotPlantError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join([*wrong, f"{len(chosen) - len(wrong)} of {len(chosen)} defects are caught"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
