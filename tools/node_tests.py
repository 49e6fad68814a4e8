#!/usr/bin/env python3
"""Runs ONNX's own node tests through edgepack, and writes docs/operators.md from what came out.

    tools/node_tests.py [--quick] [--jobs N] [--results FILE] [--again STATUS ...] [--test PATTERN ...]
    tools/node_tests.py --report            # a table of the results by operator
    tools/node_tests.py --write             # docs/operators.md

Each test is packed for this machine, opened through the C ABI, run on its inputs and compared within its
tolerance: half an hour on one core. The bundles have only the shared library, and the C that they have in
common is compiled without optimisation. ``--quick`` leaves C and bundle out: kernels of many tests are linked
into one library and run step by step, in poisoned memory; minutes, for work on operators.

Results are lines of JSON in FILE (default ``build/node_tests.jsonl``, or ``build/node_tests_quick.jsonl``): a
test that has one is not run again, unless its status is named with ``--again`` (``all`` for all) or its name
matches a PATTERN. So the script can be stopped at any time, and goes on where it was.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: Seconds that each step of a pack may take.
TIMEOUT = 120

#: Tests of one child: those whose kernels make one library with --quick, and those that it packs.
BATCH, PACKED_BATCH = 40, 250

#: What can become of a test, from best to worst.
STATUSES = ("pass", "refused", "wrong", "internal", "excluded")


def main() -> int:
    options = _options()
    name = "node_tests_quick.jsonl" if options.quick else "node_tests.jsonl"
    results = Path(options.results or ROOT / "build" / name)
    if options.child:
        _Child(quick=options.quick).run(json.loads(sys.stdin.read()))
        return 0
    if options.report or options.write:
        from tools.operators_report import table, write

        known = _read(results)
        if options.write:
            write(known, ROOT / "docs" / "operators.md", quick=options.quick)
        else:
            print(table(known))
        return 0
    results.parent.mkdir(parents=True, exist_ok=True)
    _run_all(results, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results")
    parser.add_argument("--again", nargs="*", default=[], choices=[*STATUSES, "all"])
    parser.add_argument("--test", nargs="*", default=[], help="names or patterns: these, whatever is known")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# the parent: hands out batches -----------------------------------------------------------------------------


def _run_all(results: Path, options: argparse.Namespace) -> None:
    from workbench.node_tests import load_tests

    known = _read(results)
    todo = []
    for test in load_tests().values():
        before = known.get(test.name)
        if options.test:
            wanted = any(fnmatch.fnmatch(test.name, pattern) for pattern in options.test)
        else:
            wanted = before is None or before["status"] in options.again or "all" in options.again
        if not wanted:
            continue
        if test.excluded:
            _write(results, {"test": test.name, "status": "excluded", "detail": test.excluded})
        else:
            todo.append(test.name)
    counts = {"done": 0, "bad": 0}
    lock = threading.Lock()

    def keep(record: dict[str, Any]) -> None:
        with lock:
            _write(results, record)
            counts["done"] += 1
            counts["bad"] += record["status"] != "pass"
            if counts["done"] % BATCH == 0 or counts["done"] == len(todo):
                print(f"{counts['done']} of {len(todo)} done, {counts['bad']} do not pass", flush=True)

    size = BATCH if options.quick else PACKED_BATCH
    batches = [todo[i : i + size] for i in range(0, len(todo), size)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda names: _batch(names, quick=options.quick, keep=keep), batches))


def _batch(names: Sequence[str], *, quick: bool, keep: Callable[[dict[str, Any]], None]) -> None:
    """Hands on the tests' records; one that takes its process down is an internal error, and the rest goes
    on."""
    todo = list(names)
    while todo:
        command = [sys.executable, "-W", "ignore", __file__, "--child", *(["--quick"] if quick else [])]
        running, finished = todo[0], set()
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            ) as child,
        ):
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(json.dumps(todo))
            child.stdin.close()
            for line in child.stdout:
                event = json.loads(line)
                if "begin" in event:
                    running = event["begin"]
                else:
                    finished.add(event["test"])
                    keep(event)
            code = child.wait()
            errors.seek(0)
            printed = errors.read()
        if code != 0 and running not in finished:
            detail = f"ended with {code}: {printed[-2000:]}"
            keep({"test": running, "status": "internal", "detail": detail})
            finished.add(running)
        elif code != 0 or not finished.issuperset(todo):
            raise RuntimeError(printed[-4000:])
        todo = [name for name in todo if name not in finished]


def _read(results: Path) -> dict[str, dict[str, Any]]:
    if not results.is_file():
        return {}
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {record["test"]: record for record in records}


def _write(results: Path, record: dict[str, Any]) -> None:
    with results.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


# the child: runs tests -------------------------------------------------------------------------------------


class _Child:
    """Runs tests one after the other and writes a line of JSON for each to stdout."""

    def __init__(self, *, quick: bool) -> None:
        import os

        from workbench.node_tests import load_tests

        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
        os.dup2(2, 1)  # TVM may print
        self._tests = load_tests()
        self._quick = quick

    def run(self, names: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if self._quick:
                self._in_process(names, Path(folder))
            else:
                self._packed(names, Path(folder))

    def _send(self, **event: Any) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    @contextmanager
    def _outcome(self, name: str, *, last: bool = True) -> Iterator[None]:
        """Records how the block ends; that it ends well only if it is the last one of the test."""
        from edgepack.errors import EdgepackError, InternalError

        self._send(begin=name)
        start = time.monotonic()
        status, detail = "pass", ""
        try:
            yield
        except InternalError as error:
            status, detail = "internal", str(error)
        except EdgepackError as error:
            status, detail = "refused", str(error)
        except AssertionError as error:
            status, detail = "wrong", str(error)
        except Exception as error:
            status, detail = "internal", f"{type(error).__name__}: {error}"
        if last or status != "pass":
            seconds = round(time.monotonic() - start, 2)
            self._send(test=name, status=status, detail=detail[:2000], seconds=seconds)

    def _in_process(self, names: Sequence[str], folder: Path) -> None:
        from edgepack.compiler.backends.llvm import compile_object
        from workbench.compiled import plan_of
        from workbench.executor import Executor, host_target
        from workbench.node_tests import check

        built = {}
        for number, name in enumerate(names):
            with self._outcome(name, last=False):
                one = plan_of(_bound(self._tests[name].model), f"m{number}")
                compile_object(one.functions, host_target(), folder / "alone.o")  # if this ends the process
                built[name] = one
        if not built:
            return
        executor = Executor(built, folder, optimised=True)
        for name, one in built.items():
            with self._outcome(name):
                test = self._tests[name]
                arrays = [test.inputs[spec.name] for spec in one.plan.inputs]
                check(test, executor.run(name, arrays))

    def _packed(self, names: Sequence[str], folder: Path) -> None:
        import onnx

        import edgepack
        import edgepack.commands.pack
        from edgepack.config.device import load_device
        from edgepack.pipeline.worker_process import Worker
        from edgepack.resources import TOOLCHAINS
        from edgepack.system.confinement import Access
        from workbench.node_tests import check

        # Only what a session opens, and the runtime as quickly as it can be compiled.
        device = load_device("host").model_copy(update={"artifacts": ("shared",)})
        toolchain = folder / "unoptimised.yaml"
        zig = (TOOLCHAINS / "zig.yaml").read_text(encoding="utf-8")
        toolchain.write_text(f'{zig}compile_flags: ["-O0"]\n', encoding="utf-8")
        with Worker(access=Access(reads=(folder,), writes=(folder,))) as worker:

            @contextmanager
            def lend(**_: Any) -> Iterator[Worker]:
                yield worker

            edgepack.commands.pack.Worker = lend  # type: ignore[assignment,misc]
            for name in names:
                test = self._tests[name]
                with self._outcome(name):
                    path, output = folder / "model.onnx", folder / name
                    onnx.save(test.model, path)
                    bundle = edgepack.pack(
                        path, device, output, name="m", toolchain=str(toolchain), cache=False, timeout=TIMEOUT
                    )
                    with edgepack.load(bundle) as session:
                        outputs = _run(session, test.inputs)
                    check(test, outputs)
                shutil.rmtree(output, ignore_errors=True)


def _run(session: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Outputs of a bundle's session; bfloat16 goes in and out as its bits."""
    import numpy as np

    def bits(array: Any, dtype: str) -> Any:
        return array.view(np.uint16) if dtype == "bfloat16" else array

    results = session.run({spec.name: bits(inputs[spec.name], spec.dtype) for spec in session.inputs})
    return [
        results[spec.name].view(spec.dtype) if spec.dtype == "bfloat16" else results[spec.name]
        for spec in session.outputs
    ]


def _bound(model: Any) -> Any:
    import onnx

    from edgepack.compiler.frontend.onnx.binding import bind

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    bind(copy, shapes={}, dims={})
    return copy


if __name__ == "__main__":
    sys.exit(main())
